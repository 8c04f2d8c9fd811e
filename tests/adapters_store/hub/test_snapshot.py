"""Repositories at a commit, read from a hub on loopback that may lie."""

from pathlib import Path

import pytest
from huggingface_hub import snapshot_download
from peltier_adapters.errors import AdapterError
from peltier_adapters.hub import snapshot
from peltier_adapters.hub.address import HubCollection, HubRepository
from peltier_adapters.hub.bounds import DownloadBounds
from peltier_adapters.hub.snapshot import HubError, HubSnapshot, repositories_of

from tests.support.hub_server import TOKEN, Hub

FILES = {"a.safetensors": b"a" * 100, "b.safetensors": b"b" * 90, "config.json": b"{}", "x.bin": b"pickle"}
ADDRESS = HubRepository("acme/x")


def test_huggingface_hub_itself_reads_from_the_stub(hub: Hub, tmp_path: Path) -> None:
    """The stub speaks the protocol as the hub's own client understands it."""
    hub.add("acme/x", FILES)
    found = Path(snapshot_download("acme/x", local_dir=tmp_path, endpoint=hub.endpoint))
    assert {path.name: path.read_bytes() for path in found.iterdir() if path.is_file()} == FILES


def test_a_revision_is_pinned_to_its_commit(hub: Hub) -> None:
    """A snapshot reads the files of its commit, also after the branch has moved."""
    first = hub.add("acme/x", FILES)
    found = HubSnapshot.open(ADDRESS)
    hub.add("acme/x", {"a.safetensors": b"new"})
    (file,) = found.choose(r"a\.safetensors")
    assert (found.commit, found.read(file)) == (first, FILES["a.safetensors"])
    assert found.where == f"hf://acme/x@{first}"
    assert HubSnapshot.open(HubRepository("acme/x", first)) == found


def test_no_file_is_downloaded_before_the_bounds_hold(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many files listed, too many chosen, one too large, and all together too large: each is refused by name."""
    hub.add("acme/x", FILES)
    for bounds, sentence in [
        (DownloadBounds(listed=3), "lists more than 3 files"),
        (DownloadBounds(files=1), "has 2 files to download; at most 1"),
        (DownloadBounds(file_bytes=99), "the file 'a.safetensors' has 100 bytes; at most 99"),
        (DownloadBounds(bytes=189), "has 190 bytes to download; at most 189"),
    ]:
        monkeypatch.setattr(snapshot, "BOUNDS", bounds)
        with pytest.raises(AdapterError, match=sentence):
            HubSnapshot.open(ADDRESS).choose(r".*\.safetensors")
    assert hub.downloads() == []


@pytest.mark.parametrize("path", ["a.safetensors", "config.json"])
@pytest.mark.parametrize("sent", [b"", b"c" * 100, b"{]", b"a" * 101, b"a" * 1_000_000])
def test_other_bytes_than_were_listed_are_refused(hub: Hub, path: str, sent: bytes) -> None:
    """By the hash that the hub lists for the commit, whatever their number; a longer file is not read to its end."""
    hub.add("acme/x", FILES)
    hub.sent[path] = sent
    found = HubSnapshot.open(ADDRESS)
    with pytest.raises(HubError, match=f"the file {path!r} has .* that? the hub lists|of another content than the hub"):
        found.read(found.files[path])


def test_a_token_goes_to_the_hub_alone(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A private repository is read with huggingface_hub's token, which the address of the bytes does not get."""
    hub.add("acme/x", FILES)
    hub.repositories["acme/x"].is_private = True
    with pytest.raises(HubError, match="hf://acme/x cannot be read: 401"):
        HubSnapshot.open(ADDRESS)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    found = HubSnapshot.open(ADDRESS)
    assert found.read(found.files["a.safetensors"]) == FILES["a.safetensors"]
    tokens = {token for _, path, token in hub.requests if path.startswith("/lfs/")}
    assert tokens == {None}


def test_errors_are_one_sentence_without_secrets(hub: Hub) -> None:
    """What is missing is named; the signature of a redirect is not repeated."""
    hub.add("acme/x", FILES)
    with pytest.raises(HubError, match="hf://acme/x@v9 cannot be read: 404"):
        HubSnapshot.open(HubRepository("acme/x", "v9"))
    found = HubSnapshot.open(ADDRESS)
    hub.large.clear()
    with pytest.raises(HubError, match=r"'a\.safetensors' cannot be downloaded") as refused:
        found.read(found.files["a.safetensors"])
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_collection_names_its_models(hub: Hub) -> None:
    """In its order, without data sets; a name that is no repository's is refused."""
    hub.collections["acme/tasks"] = [("model", "acme/b"), ("dataset", "acme/d"), ("model", "acme/a")]
    found = repositories_of(HubCollection("acme/tasks"))
    assert found == [HubRepository("acme/b"), HubRepository("acme/a")]
    hub.collections["acme/tasks"] = [("model", "../../etc")]
    with pytest.raises(AdapterError, match="is not of the form"):
        repositories_of(HubCollection("acme/tasks"))
