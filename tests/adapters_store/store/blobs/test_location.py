from pathlib import Path

import pytest
from obstore.store import AzureStore, GCSStore, LocalStore, S3Store
from peltier_store.blobs.errors import BlobError
from peltier_store.blobs.location import is_remote, locate


def test_a_path_is_a_directory_that_is_made(tmp_path: Path) -> None:
    """A path or a URL may be relative to the working directory at the start."""
    for given in (tmp_path / "a" / "b", str(tmp_path / "c"), (tmp_path / "d e#f%20?").as_uri()):
        location = locate(given)
        assert isinstance(location.store, LocalStore)
        assert location.directory is not None
        assert location.directory.is_dir()
        assert location.name == str(location.directory)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "c", "d e#f%20?"}


@pytest.mark.parametrize(
    ("url", "kind", "config"),
    [
        ("s3://bucket", S3Store, {"bucket": "bucket"}),
        ("s3://bucket/a%20b/c/", S3Store, {"bucket": "bucket"}),
        ("s3://bucket?region=eu-west-3", S3Store, {"bucket": "bucket", "region": "eu-west-3"}),
        ("gs://bucket/a?endpoint=https://g.example", GCSStore, {"bucket": "bucket", "base_url": "https://g.example"}),
        (
            "az://blobs?account_name=acme&endpoint=https://a.example/x",
            AzureStore,
            {"container_name": "blobs", "account_name": "acme", "endpoint": "https://a.example/x"},
        ),
    ],
)
def test_a_url_is_a_bucket_with_its_options(url: str, kind: type, config: dict[str, str]) -> None:
    """Each service's URL opens its store with the given options, without network requests."""
    location = locate(url)
    assert isinstance(location.store, kind)
    assert location.directory is None
    assert location.store.config == config


def test_a_prefix_is_part_of_the_name_and_options_are_not() -> None:
    """Messages name the bucket and the prefix."""
    location = locate("s3://bucket/a%20b/c/?endpoint=https://s3.example:9000&timeout=7")
    assert location.name == "s3://bucket/a%20b/c"
    assert isinstance(location.store, S3Store)
    assert location.store.prefix == "a b/c"


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        (
            "s3://bucket?acces_key_id=x",
            "the blob store 's3://bucket' has no option 'acces_key_id'; known options: ",
        ),
        ("gs://bucket?region=x", "has no option 'region'; known options: allow_http, endpoint, timeout"),
        ("s3://bucket?region=a&region=b", "the blob store 's3://bucket' has the option 'region' twice"),
        ("s3://bucket?region=", "has the option region='', which must be given"),
        *[
            (
                f"s3://bucket?timeout={text}",
                f"option timeout='{text}', which must be a whole number of seconds from 1 to",
            )
            for text in ("", "0", "1.5", "-3", "600", "soon")
        ],
        ("s3://bucket?endpoint=s3.example", "has the option endpoint='s3.example', which must be an http"),
        ("s3://bucket?allow_http=1", "has the option allow_http='1', which must be true or false"),
        ("s3://bucket?endpoint=http://a.example", "has an unencrypted endpoint; allow_http=true allows it"),
        ("s3://", "the blob store 's3://' is not of the form s3://BUCKET/PREFIX"),
        ("s3://bucket:80/x", "is not of the form s3://BUCKET/PREFIX"),
        ("s3://bucket/x#y", "is not of the form s3://BUCKET/PREFIX"),
        ("s3://[bucket", "is not of the form s3://BUCKET/PREFIX"),
        ("ftp://host/x", "the blob store 'ftp://host/x' is neither a directory nor one of s3://BUCKET/PREFIX, gs://"),
        ("az://container", "the blob store 'az://container' cannot be opened: .*Account must be specified"),
        ("file://host/blobs", "is neither a directory nor a file:///DIRECTORY URL"),
        ("file://", "is neither a directory nor a file:///DIRECTORY URL"),
    ],
)
def test_a_wrong_url_is_refused_in_one_sentence(url: str, sentence: str) -> None:
    with pytest.raises(BlobError, match=rf"(?s)\A[^\n]*{sentence}[^\n]*\Z"):
        locate(url)


@pytest.mark.parametrize("url", ["s3://key:hunter2@bucket/x", "ftp://key:hunter2@bucket/x", "s3://bucket?key=hunter2"])
def test_a_secret_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    """Credentials belong in the environment; a message never shows a possible secret."""
    with pytest.raises(BlobError) as caught:
        locate(url)
    assert "hunter2" not in str(caught.value)


def test_directories_are_told_from_buckets() -> None:
    assert [is_remote(text) for text in ("a", Path("/a"), "file:///a", "s3://a", "ftp://a")] == [False] * 3 + [True] * 2
