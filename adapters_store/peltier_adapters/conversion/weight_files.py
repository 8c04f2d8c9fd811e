"""The files of a checkpoint that hold its weights, one or in shards. Imports no torch."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peltier_backbone.errors import BackboneError

INDEX = "model.safetensors.index.json"
_INDICES, _SINGLES = (INDEX, "pytorch_model.bin.index.json"), ("model.safetensors", "pytorch_model.bin")
_SUFFIXES = (".bin", ".safetensors")


@dataclass(frozen=True)
class WeightFile:
    """A file of weights, and the path of its safetensors in the new directory."""

    source: Path
    target: str


@dataclass(frozen=True)
class WeightFiles:
    """The weights of the checkpoint in `directory`. `index` has the shard of each tensor; None without shards."""

    directory: Path
    files: Sequence[WeightFile]
    index: dict[str, str] | None = None

    @property
    def num_bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.source.stat().st_size for file in self.files)


def find_weights(directory: Path) -> WeightFiles:
    """The weights in `directory`: safetensors if it has both these and pickles. Raises a `BackboneError`."""
    for index, single in zip(_INDICES, _SINGLES, strict=True):
        if (directory / index).is_file():
            return _shards(directory, directory / index)
        if (directory / single).is_file():
            return WeightFiles(directory, [_file(directory / single, "")])
        if (directory / single).is_symlink():
            raise BackboneError(f"{directory / single} is a link to a file that is not there")
    raise BackboneError(f"{directory} has no weights: none of {', '.join((*_SINGLES, *_INDICES))}")


def find_module_weights(directory: Path) -> list[WeightFile]:
    """The weights of sentence-transformers' modules, such as those of `2_Dense`."""
    found = []
    for folder in sorted(directory.glob("[0-9]_*")):
        paths = [folder / single for single in _SINGLES if (folder / single).is_file()]
        found += [_file(path, f"{folder.name}/") for path in paths[:1]]
    return found


def _shards(directory: Path, index: Path) -> WeightFiles:
    shard_of = _weight_map(index)
    files = [_file(directory / name, "") for name in sorted(set(shard_of.values()))]
    missing = [file.source.name for file in files if not file.source.is_file()]
    if missing:
        raise BackboneError(f"{index} names shards that are not there: {', '.join(missing)}")
    targets = {file.source.name: file.target for file in files}
    if len(set(targets.values())) < len(targets):
        raise BackboneError(f"{index} names shards that differ only in their suffix")
    return WeightFiles(directory, files, {name: targets[shard] for name, shard in shard_of.items()})


def _weight_map(index: Path) -> dict[str, str]:
    try:
        shard_of: Any = json.loads(index.read_text())["weight_map"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        shard_of = None
    if not isinstance(shard_of, dict) or not shard_of:
        raise BackboneError(f"{index} is not a readable shard index: it needs a 'weight_map'")
    for name in shard_of.values():
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(_SUFFIXES):
            raise BackboneError(f"{index} names the shard {name!r}; a shard is a .bin or .safetensors file beside it")
    return shard_of


def _file(source: Path, folder: str) -> WeightFile:
    return WeightFile(source, f"{folder}{re.sub('^pytorch_model', 'model', source.stem)}.safetensors")
