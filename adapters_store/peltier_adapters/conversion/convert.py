"""From a checkpoint as it is published to a directory that Peltier serves."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peltier_backbone.checkpoint.config import load_config
from peltier_backbone.errors import BackboneError
from peltier_backbone.text.tokenizer_files import TOKENIZER_FILE, write_tokenizer

from peltier_adapters.conversion.archive import check_room, unpack
from peltier_adapters.conversion.checkpoint_files import (
    INDEX,
    WeightFile,
    WeightFiles,
    copy_companions,
    find_module_weights,
    find_snapshot,
    find_unpacked,
    find_weights,
)
from peltier_adapters.durable import sync

_READER = "peltier_adapters.conversion.reader"
# A torch file is a zip too.
_WEIGHTS = (".bin", ".pt", ".pth", ".safetensors")
# What the reader needs to find Python's packages; keys and tokens of the caller are none of its business.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "TMPDIR", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Conversion:
    """What was written. `dtypes` has the number of weights of each dtype; `sealed` says whether the system kept the
    process that read the weights from the network."""

    family: str
    fingerprint: str
    num_parameters: int
    dtypes: Mapping[str, int]
    num_bytes: int
    sealed: bool


def convert_checkpoint(checkpoint: Path, output: Path) -> Conversion:
    """Write the checkpoint, a directory, a hub cache or a zip of either, as safetensors to the new directory `output`,
    with what else a served checkpoint needs: also `tokenizer.json`, if it has another tokenizer. Weights keep their
    values and dtypes.

    Raises a `BackboneError`, and then leaves nothing at or beside `output`.
    """
    _check_output(output)
    with _staging(output) as folder, _named_as(checkpoint, output, folder):
        directory = _locate(checkpoint, folder / "unpacked")
        new = folder / "checkpoint"
        load_config(directory)
        new.mkdir()
        found = _write(directory, new)
        conversion = _measure(new, checkpoint, found)
        _publish(new, output)
    return conversion


def _check_output(output: Path) -> None:
    if os.path.lexists(output):
        raise BackboneError(f"output {output} exists already; a conversion writes a new directory")
    if not output.parent.is_dir() or not os.access(output.parent, os.W_OK):
        raise BackboneError(f"output {output} cannot be written: {output.parent} is no writable directory")


@contextmanager
def _staging(output: Path) -> Iterator[Path]:
    """A temporary directory on the disk of `output`."""
    folder = tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".partial", dir=output.parent.resolve())
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _named_as(checkpoint: Path, output: Path, folder: Path) -> Iterator[None]:
    """Errors of the block name what the user knows instead of temporary files."""
    try:
        yield
    except BackboneError as error:
        message = str(error).replace(str(folder / "unpacked"), str(checkpoint))
        message = message.replace(str(folder / "checkpoint"), str(output))
        raise BackboneError(message.replace(str(folder), str(output))) from error
    except OSError as error:
        # The second name is that of a copy.
        written = error.filename2 or error.filename
        if written is not None and not str(written).startswith(str(folder)):
            raise
        raise BackboneError(f"{output} cannot be written: {error.strerror}") from error


def _locate(checkpoint: Path, unpacked: Path) -> Path:
    if not checkpoint.is_file():
        return find_snapshot(checkpoint)
    if checkpoint.suffix in _WEIGHTS:
        raise BackboneError(f"{checkpoint} is a file of weights; a checkpoint is the directory with its config.json")
    if not zipfile.is_zipfile(checkpoint):
        raise BackboneError(f"{checkpoint} is no checkpoint: it is neither a directory nor a zip")
    unpack(checkpoint, unpacked)
    return find_unpacked(unpacked)


def _write(directory: Path, new: Path) -> dict[str, Any]:
    weights, modules = find_weights(directory), find_module_weights(directory)
    check_room(new, weights.num_bytes)
    copy_companions(directory, new)
    if not (new / TOKENIZER_FILE).is_file():
        write_tokenizer(directory, new)
    for file in modules:
        (new / file.target).parent.mkdir(exist_ok=True)
    answer = _read([*weights.files, *modules], new)
    answer["files"] = answer["files"][: len(weights.files)]
    if weights.index is not None:
        _write_index(weights, weights.index, answer["files"], new)
    return answer


def _read(files: Sequence[WeightFile], new: Path) -> dict[str, Any]:
    """Write the files as safetensors, in a process that reads nothing else and has no network."""
    job = json.dumps([[str(file.source.absolute()), str(new / file.target)] for file in files])
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-P", "-m", _READER],
        input=job,
        env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        capture_output=True,
        text=True,
    )
    if done.returncode < 0:
        raise BackboneError(
            f"{files[0].source.parent}: the process that read the weights was ended by signal {-done.returncode}, "
            "as when memory runs out"
        )
    if done.returncode:
        raise RuntimeError(f"the process that reads weights failed: {done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout)
    if "error" in answer:
        raise BackboneError(answer["error"])
    return answer


def _write_index(weights: WeightFiles, index: Mapping[str, str], written: list[dict[str, Any]], new: Path) -> None:
    names = {name for facts in written for name in facts["names"]}
    if missing := sorted(index.keys() - names):
        raise BackboneError(f"{weights.directory}: tensor {missing[0]!r} of the shard index is missing in the shards")
    shard_of = {name: file.target for file, one in zip(weights.files, written, strict=True) for name in one["names"]}
    total = {"total_size": sum(facts["bytes"] for facts in written)}
    (new / INDEX).write_text(json.dumps({"metadata": total, "weight_map": shard_of}, indent=2) + "\n")


def _measure(new: Path, checkpoint: Path, answer: Mapping[str, Any]) -> Conversion:
    """Load it as a server does, which checks names and shapes of all tensors and reads the tokenizer."""
    from peltier_backbone.load import load_backbone

    try:
        backbone = load_backbone(str(new))
    except BackboneError as error:
        raise BackboneError(str(error).replace(str(new), str(checkpoint))) from error
    return Conversion(
        family=backbone.config.family,
        fingerprint=backbone.fingerprint,
        num_parameters=backbone.config.num_parameters,
        dtypes=dict(sum((Counter(facts["dtypes"]) for facts in answer["files"]), Counter[str]())),
        num_bytes=sum(path.stat().st_size for path in new.rglob("*") if path.is_file()),
        sealed=answer["sealed"],
    )


def _publish(new: Path, output: Path) -> None:
    """Move the directory to its place, where after a crash it is whole or absent."""
    for path in [*new.rglob("*"), new]:
        sync(path)
    _check_output(output)
    new.rename(output)
    sync(output.parent)
