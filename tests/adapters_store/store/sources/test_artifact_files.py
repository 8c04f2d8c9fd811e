"""The artifact files of sources."""

from pathlib import Path

import pytest
from peltier_adapters.errors import AdapterError
from peltier_adapters.hub.download import DownloadBounds
from peltier_store.blobs.location import locate
from peltier_store.sources import artifact_files
from peltier_store.sources.artifact_files import find_artifacts
from peltier_store.sources.source import check_source


def test_a_directory_and_a_bucket_list_their_artifacts(tmp_path: Path, s3_store: str) -> None:
    """The files NAME.safetensors, in their order, and nothing else."""
    store = locate(s3_store).store
    for name in ("b.safetensors", "a.safetensors", "notes.txt"):
        (tmp_path / name).write_bytes(name.encode())
        store.put(name, name.encode())
    for source in (tmp_path, f"file://{tmp_path}", s3_store):
        found = find_artifacts(source)
        assert [file.read() for file in found] == [b"a.safetensors", b"b.safetensors"]
        assert {file.size_bytes for file in found} == {len("a.safetensors")}


def test_the_bounds_of_a_bucket_hold_before_a_download(s3_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And an object that has grown since the list is read to its listed size."""
    store = locate(s3_store).store
    store.put("a.safetensors", b"12345")
    (file,) = find_artifacts(s3_store)
    store.put("a.safetensors", b"1234567")
    assert file.read() == b"12345"
    monkeypatch.setattr(artifact_files, "BOUNDS", DownloadBounds(file_bytes=6))
    with pytest.raises(AdapterError, match=r"the file 'a\.safetensors' has 7 bytes; at most 6 are allowed"):
        find_artifacts(s3_store)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("hf://acme", "is not of the form hf://OWNER/NAME"),
        ("s3://", "is not of the form s3://BUCKET/PREFIX"),
        ("ftp://x/y", "is neither a directory nor one of s3://BUCKET/PREFIX"),
    ],
)
def test_a_source_that_is_none_is_refused_by_its_form(source: str, sentence: str) -> None:
    """Nothing connects to it."""
    with pytest.raises(AdapterError, match=sentence):
        check_source(source)


def test_sources_that_are_right_are_kept() -> None:
    """Local ones as paths."""
    assert check_source("file:///var/lib") == Path("/var/lib")
    assert check_source("examples") == Path("examples")
    for source in ("gs://bucket/prefix", "hf://acme/sst2@v2"):
        assert check_source(source) == source


def test_a_bucket_that_sends_slowly_is_given_up(s3_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the time that all its reads have taken, however many files are left."""
    for name in "ab":
        locate(s3_store).store.put(f"{name}.safetensors", b"12345")
    monkeypatch.setattr(artifact_files, "seconds_for", lambda num_bytes: 0)
    first, second = find_artifacts(s3_store)
    assert first.read() == b"12345"
    with pytest.raises(AdapterError, match="has not sent its files within 0 seconds"):
        second.read()
