"""The files of weights in a directory."""

import json
from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.conversion.weight_files import find_module_weights, find_weights
from peltier_backbone.errors import BackboneError


def _touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"1234")


def _index(folder: Path, weight_map: Any) -> None:
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_safetensors_come_before_pickles(tmp_path: Path) -> None:
    """A repository that has both has the same weights twice."""
    _touch(tmp_path, "pytorch_model.bin")
    (pickled,) = find_weights(tmp_path).files
    assert (pickled.source.name, pickled.target) == ("pytorch_model.bin", "model.safetensors")
    _touch(tmp_path, "model.safetensors")
    assert [file.source.name for file in find_weights(tmp_path).files] == ["model.safetensors"]


def test_shards_keep_their_names(tmp_path: Path) -> None:
    """Except for the suffix and the name of torch."""
    names = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    _touch(tmp_path, *names)
    _index(tmp_path, {"a": names[1], "b": names[0], "c": names[0]})
    found = find_weights(tmp_path)
    assert [file.target for file in found.files] == [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    assert found.index is not None
    assert found.index["a"] == "model-00002-of-00002.safetensors"
    assert found.num_bytes == 8


@pytest.mark.parametrize("name", ["../a.bin", "/etc/a.bin", "a.pkl", 3, "x/a.bin"])
def test_a_shard_is_a_file_beside_its_index(name: object, tmp_path: Path) -> None:
    """An index leads to no other file."""
    _index(tmp_path, {"a": name})
    with pytest.raises(BackboneError, match=r"a shard is a \.bin or \.safetensors file beside it"):
        find_weights(tmp_path)


@pytest.mark.parametrize("weight_map", [None, [], {}, "a"])
def test_an_index_has_a_map(weight_map: object, tmp_path: Path) -> None:
    """Anything else is refused by its file."""
    _index(tmp_path, weight_map)
    with pytest.raises(BackboneError, match="is not a readable shard index"):
        find_weights(tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    """A shard, the file of a link, and all weights."""
    with pytest.raises(BackboneError, match=r"has no weights: none of model\.safetensors, pytorch_model\.bin"):
        find_weights(tmp_path)
    (tmp_path / "pytorch_model.bin").symlink_to("../blobs/1")
    with pytest.raises(BackboneError, match=r"pytorch_model\.bin is a link to a file that is not there"):
        find_weights(tmp_path)
    _index(tmp_path, {"a": "x-1.bin"})
    with pytest.raises(BackboneError, match=r"names shards that are not there: x-1\.bin"):
        find_weights(tmp_path)


def test_modules_of_sentence_transformers_have_weights_too(tmp_path: Path) -> None:
    """Those of their folders, of either format."""
    _touch(tmp_path, "2_Dense/pytorch_model.bin", "1_Pooling/config.json")
    (found,) = find_module_weights(tmp_path)
    assert (found.source, found.target) == (tmp_path / "2_Dense/pytorch_model.bin", "2_Dense/model.safetensors")
