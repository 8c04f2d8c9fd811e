"""Repositories at a commit, downloaded from a hub on loopback that may lie."""

import os
import threading
from pathlib import Path

import pytest
from peltier_adapters.errors import AdapterError
from peltier_adapters.hub import download as hub_download
from peltier_adapters.hub.address import HubRepository
from peltier_adapters.hub.download import DownloadBounds, HubError, download, fetch
from peltier_adapters.limited_process import Limits, run

from tests.support.hub_server import TOKEN, Hub

FILES = {"a.safetensors": b"a" * 100, "b.safetensors": b"b" * 90, "config.json": b"{}", "x.bin": b"pickle"}
ADDRESS = HubRepository("acme/x")


def test_a_revision_is_pinned_to_its_commit(hub: Hub) -> None:
    """Its files are those that Peltier reads. What was downloaded before is not asked for again."""
    commit = hub.add("acme/x", {**FILES, "a/b.safetensors": b"", "a[b]*.safetensors": b"c"})
    found = download(ADDRESS)
    assert found.address == f"hf://acme/x@{commit}"
    assert found.files == {"a.safetensors", "b.safetensors", "config.json", "a[b]*.safetensors"}
    assert set(os.listdir(found.directory)) == found.files
    assert (found.directory / "a.safetensors").read_bytes() == FILES["a.safetensors"]
    assert not [path for path in hub.downloads() if path.endswith(".bin")]
    hub.requests.clear()
    assert download(HubRepository("acme/x", commit)) == found
    assert hub.downloads() == []


def test_no_file_is_downloaded_before_the_bounds_hold(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many files listed, too many chosen, one too large, and all together too large: each is refused by name."""
    hub.add("acme/x", FILES)
    for bounds, sentence in [
        (DownloadBounds(listed=3), "lists more than 3 files"),
        (DownloadBounds(files=2), "has 3 files to download; at most 2"),
        (DownloadBounds(file_bytes=99), "the file 'a.safetensors' has 100 bytes; at most 99"),
        (DownloadBounds(bytes=191), "has 192 bytes to download; at most 191"),
    ]:
        monkeypatch.setattr(hub_download, "BOUNDS", bounds)
        with pytest.raises(AdapterError, match=sentence):
            download(ADDRESS)
    assert hub.downloads() == []


def test_the_process_is_limited_by_what_the_hub_lists(hub: Hub) -> None:
    """A minute for the list; then for each 256 KiB a second more, and no file larger than the largest."""
    hub.add("acme/x", {"a.safetensors": bytes(2**20), "b.safetensors": bytes(2**20)})
    limits: list[Limits] = []
    fetch({"name": "acme/x", "revision": None}, limits.append)
    assert [one.seconds for one in limits] == [60, 68]
    assert [one.file_bytes for one in limits] == [2**24, 2**24 + 2**20]
    assert all(one.memory_bytes == 2**31 for one in limits)


@pytest.mark.parametrize("path", ["a.safetensors", "config.json"])
@pytest.mark.parametrize("sent", [b"", b"c" * 100, b"{]", b"a" * 101, b"a" * 1_000_000])
def test_other_bytes_than_were_listed_are_refused(hub: Hub, path: str, sent: bytes) -> None:
    """By the hash that the hub lists for the commit, whatever their number; and they are not kept."""
    hub.add("acme/x", FILES)
    hub.sent[path] = sent
    with pytest.raises(
        HubError, match=f"the file {path!r} has another content than the hub lists|cannot be downloaded"
    ):
        download(ADDRESS)
    hub.sent.clear()
    assert (download(ADDRESS).directory / path).read_bytes() == FILES[path]


def test_a_token_goes_to_the_hub_alone(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A private repository is read with huggingface_hub's token, which the address of the bytes does not get."""
    hub.add("acme/x", FILES)
    hub.repositories["acme/x"].is_private = True
    with pytest.raises(HubError, match="hf://acme/x cannot be read: 401"):
        download(ADDRESS)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert (download(ADDRESS).directory / "a.safetensors").read_bytes() == FILES["a.safetensors"]
    tokens = {token for _, path, token in hub.requests if path.startswith("/lfs/")}
    assert tokens == {None}


def test_errors_are_one_sentence_without_secrets(hub: Hub) -> None:
    """What is missing is named; the signature of a redirect is not repeated."""
    hub.add("acme/x", FILES)
    with pytest.raises(HubError, match="hf://acme/x@v9 cannot be read: 404"):
        download(HubRepository("acme/x", "v9"))
    hub.large.clear()
    with pytest.raises(HubError, match=r"hf://acme/x@[0-9a-f]{40} cannot be downloaded") as refused:
        download(ADDRESS)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_repository_of_something_else_is_refused(hub: Hub) -> None:
    """Nothing of it is downloaded."""
    hub.add("acme/x", {"README.md": b"", "x.bin": b"pickle"})
    with pytest.raises(HubError, match=r"has neither an artifact, NAME\.safetensors of Peltier, nor an adapter_config"):
        download(ADDRESS)
    assert hub.downloads() == []


def test_a_process_of_its_own_downloads(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the address, the token and the folder of the environment."""
    hub.add("acme/x", FILES)
    hub.repositories["acme/x"].is_private = True
    for name, value in {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN, "HF_HUB_CACHE": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(hub_download, "run", run)
    found = download(ADDRESS)
    assert found.directory.is_relative_to(tmp_path)
    assert (found.directory / "a.safetensors").read_bytes() == FILES["a.safetensors"]
    with pytest.raises(AdapterError, match="hf://acme/x@v9 cannot be read: 404"):
        download(HubRepository("acme/x", "v9"))


def test_all_files_together_have_no_more_bytes_than_are_listed(hub, tmp_path, monkeypatch):
    """Each is below the limit of the process. The download is ended before its last byte comes, and nothing is kept."""
    files = {f"{number}.safetensors": bytes([number]) * 12_000_000 for number in range(3)}
    hub.add("acme/x", files)
    hub.listed, hub.last_byte = dict.fromkeys(files, 1), threading.Event()
    for name, value in {"HF_ENDPOINT": hub.endpoint, "HF_HUB_CACHE": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(hub_download, "run", run)
    try:
        with pytest.raises(AdapterError, match=r"has more bytes than the 3 that the hub lists for its files$"):
            download(ADDRESS)
    finally:
        hub.last_byte.set()
    assert [path for path in (tmp_path / "models--acme--x" / "blobs").iterdir() if path.stat().st_size] == []
