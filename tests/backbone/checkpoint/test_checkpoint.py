"""Finding and reading checkpoint files."""

import json
import socket
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub.utils import close_session
from peltier_backbone.checkpoint import checkpoint
from peltier_backbone.checkpoint.checkpoint import find_checkpoint, read_tensors
from peltier_backbone.errors import BackboneError
from safetensors.torch import save_file


def _shards(directory: Path) -> None:
    save_file({"a": torch.ones(2)}, directory / "one.safetensors")
    save_file({"b": torch.zeros(3)}, directory / "two.safetensors")


def _index(directory: Path, content: object) -> None:
    (directory / "model.safetensors.index.json").write_text(json.dumps(content))


def test_minilm_is_a_directory_with_weights():
    """The packaged backbone works without a network."""
    assert (find_checkpoint("minilm") / "model.safetensors").is_file()


@pytest.mark.parametrize("name", ["/no/such/directory", "./missing", "a/b/c"])
def test_a_missing_directory_never_asks_the_hub(name: str):
    """What cannot be a hub id is reported at once."""
    with pytest.raises(BackboneError, match=f"{name}' is not a directory"):
        find_checkpoint(name)


def test_an_unknown_name_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    """The hub client's own many-line errors become one line that names the backbone."""

    def refuse(*_: object, **__: object) -> str:
        raise RuntimeError("404 Client Error\nRepository Not Found\ntrace")

    monkeypatch.setattr(checkpoint, "snapshot_download", refuse)
    with pytest.raises(BackboneError, match=r"^backbone 'no-such-model' is neither .* 404 Client Error$"):
        find_checkpoint("no-such-model")


def test_a_hub_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """huggingface_hub itself would wait for ever for the commit of the name."""
    monkeypatch.setattr(checkpoint, "_SILENT_SECONDS", 0.05)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
        with pytest.raises(BackboneError, match=r"^backbone 'acme/x' is neither .*[Tt]imed? ?out"):
            find_checkpoint("acme/x")
    close_session()


def test_shards_are_joined(tmp_path: Path):
    """The index names the shards; together they give all tensors."""
    _shards(tmp_path)
    _index(tmp_path, {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})
    assert read_tensors(tmp_path).keys() == {"a", "b"}


def test_a_missing_shard_is_named(tmp_path: Path):
    """A half-downloaded checkpoint says which file is not there."""
    _shards(tmp_path)
    _index(tmp_path, {"weight_map": {"a": "one.safetensors", "b": "three.safetensors"}})
    with pytest.raises(BackboneError, match=r"three\.safetensors"):
        read_tensors(tmp_path)


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path):
    """It would be unclear which of the two is valid."""
    _shards(tmp_path)
    save_file({"a": torch.zeros(2)}, tmp_path / "two.safetensors")
    _index(tmp_path, {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})
    with pytest.raises(BackboneError, match="'a' is in another shard too"):
        read_tensors(tmp_path)


@pytest.mark.parametrize(
    "content", [[], {}, {"weight_map": 3}, {"weight_map": {"a": ["x"]}}, {"weight_map": {"a": 1, "b": "c"}}]
)
def test_a_broken_index_is_refused(content: object, tmp_path: Path):
    """An index that is no map from tensors to files is one sentence."""
    _index(tmp_path, content)
    with pytest.raises(BackboneError, match="index"):
        read_tensors(tmp_path)


def test_an_index_that_is_a_directory_is_refused(tmp_path: Path):
    """What the file system refuses is a sentence too."""
    (tmp_path / "model.safetensors.index.json").mkdir()
    with pytest.raises(BackboneError, match="not a readable shard index"):
        read_tensors(tmp_path)


def test_pickles_are_never_opened(tmp_path: Path):
    """A checkpoint of .bin files alone is refused by that reason, with the command that converts it."""
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(BackboneError, match=r"pickled checkpoints \(\.bin\) are never read, `peltier convert` writes"):
        read_tensors(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\x80\x04pickle", b"\xff" * 64])
def test_a_broken_file_is_named(content: bytes, tmp_path: Path):
    """A truncated or foreign file is refused with its path."""
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(BackboneError, match=r"model\.safetensors is not a readable safetensors file"):
        read_tensors(tmp_path)
