"""The files of a checkpoint, in a directory or in the hub's cache: those that hold its weights, one or in shards, and
those beside them. Imports no torch."""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peltier_backbone.errors import BackboneError

# vocab.txt, merges.txt, spiece.model, tokenizer.json, chat_template.jinja, LICENSE, …
_READ = re.compile(r"[^.].*\.(?:json|txt|model|jinja|md)|(?:LICENSE|NOTICE|COPYING)[^/]*")
_MODULE = "[0-9]_*/config.json"
INDEX = "model.safetensors.index.json"
_INDICES, _SINGLES = (INDEX, "pytorch_model.bin.index.json"), ("model.safetensors", "pytorch_model.bin")
_SUFFIXES = (".bin", ".safetensors")
# The folder of a repository in the hub's cache begins so.
_CACHE = ("models--", "datasets--", "spaces--")
# Of a file beside the weights; the largest published tokenizers have 40 MB.
_MAX_BYTES = 256 * 1024**2


def find_snapshot(path: Path) -> Path:
    """The directory with the config.json: `path`, or in a hub cache `models--OWNER--NAME` the revision of refs/main."""
    if not path.is_dir():
        raise BackboneError(f"{path} is no checkpoint: it is not a directory")
    if (path / "config.json").is_file():
        return path
    if (path / "snapshots").is_dir():
        return _main_revision(path)
    raise BackboneError(f"{path} is not a checkpoint directory: it has no config.json")


def check_files(directory: Path, checkpoint: Path) -> None:
    """Check the files of the `directory` that `find_snapshot` found, before one of them is read.

    Raises a `BackboneError` for a link out of `checkpoint`, for what is no regular file, and for a huge file beside the
    weights. Links of a hub cache may lead to anything in the folder of the repository and to the blobs that all
    repositories of the cache share.
    """
    root = checkpoint.resolve()
    # In a cache, the folder of the repository, also of one of its snapshots or of a folder in it.
    root = next((one for one in (root, *root.parents) if one.name.startswith(_CACHE)), root)
    shared = root.parent / "blobs" if root.name.startswith(_CACHE) else root
    for path in (directory, *directory.iterdir(), *directory.glob("[0-9]_*/*")):
        target = path.resolve()
        if not target.is_relative_to(root) and not target.is_relative_to(shared):
            raise BackboneError(f"{path} is a link out of {root}; copy what it leads to")
        if not target.exists():
            raise BackboneError(f"{path} is a link to a file that is not there")
        if not target.is_dir() and not target.is_file():
            raise BackboneError(f"{path} is neither a file nor a directory")
        if _READ.fullmatch(path.name) and target.stat().st_size > _MAX_BYTES:
            raise BackboneError(f"{path} has {target.stat().st_size:,} bytes; at most {_MAX_BYTES:,} are read")


def _main_revision(cache: Path) -> Path:
    reference = cache / "refs" / "main"
    try:
        revision = reference.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        raise BackboneError(f"{cache} is a hub cache without refs/main; name one of its snapshots") from None
    snapshot = cache / "snapshots" / revision
    if not revision or snapshot.parent != cache / "snapshots" or revision == "..":
        raise BackboneError(f"{reference} holds {revision!r}, which is no revision")
    if not (snapshot / "config.json").is_file():
        raise BackboneError(f"{cache}: the revision {revision} of refs/main has no config.json in snapshots")
    return snapshot


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
        shard_of: Any = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
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


def copy_companions(directory: Path, target: Path) -> int:
    """Copy the files beside the weights (configuration, tokenizer, licence) to the directory `target`, also the
    configurations of sentence-transformers' modules. Returns their number."""
    paths = list(_companions(directory))
    for path in paths:
        copy = target / path.relative_to(directory)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, copy)
    return len(paths)


def _companions(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        # Indices of shards are made anew.
        if _READ.fullmatch(path.name) and not path.name.endswith(".index.json") and not path.is_dir():
            yield path
    yield from sorted(directory.glob(_MODULE))
