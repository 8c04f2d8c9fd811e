"""From a checkpoint as it is published to a directory that Peltier serves."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from peltier_backbone.checkpoint.config import load_config
from peltier_backbone.errors import BackboneError
from peltier_backbone.text.tokenizer_files import TOKENIZER_FILE, write_tokenizer

from peltier_adapters.conversion.checkpoint_files import (
    INDEX,
    WeightFiles,
    check_files,
    copy_companions,
    find_module_weights,
    find_snapshot,
    find_weights,
)
from peltier_adapters.conversion.weights import write_safetensors
from peltier_adapters.durable import sync
from peltier_adapters.errors import AdapterError


@dataclass(frozen=True)
class Conversion:
    """What was written. `dtypes` has the number of weights of each dtype."""

    family: str
    fingerprint: str
    num_parameters: int
    dtypes: Mapping[str, int]
    num_bytes: int


def convert_checkpoint(checkpoint: Path, output: Path) -> Conversion:
    """Write the checkpoint, a directory or a hub cache, as safetensors to the new directory `output`, with what else a
    served checkpoint needs: also `tokenizer.json`, if it has another tokenizer. Weights keep their values and dtypes.

    Raises a `BackboneError`, and then leaves nothing at or beside `output`.
    """
    _check_output(output)
    directory = find_snapshot(checkpoint)
    check_files(directory, checkpoint)
    load_config(directory)
    # On the disk of `output`.
    place = output.parent.resolve()
    with TemporaryDirectory(".partial", f".{output.name}.", place, ignore_cleanup_errors=True) as folder:
        new = Path(folder, "checkpoint")
        new.mkdir()
        with _named_as(output, new):
            found = _write(directory, new)
            conversion = _measure(new, directory, found)
            _publish(new, output)
    return conversion


def _check_output(output: Path) -> None:
    if os.path.lexists(output):
        raise BackboneError(f"output {output} exists already; a conversion writes a new directory")
    if not output.parent.is_dir() or not os.access(output.parent, os.W_OK):
        raise BackboneError(f"output {output} cannot be written: {output.parent} is no writable directory")


@contextmanager
def _named_as(output: Path, new: Path) -> Iterator[None]:
    """Errors of the block name the output instead of the temporary directory `new`."""
    try:
        yield
    except (BackboneError, AdapterError) as error:
        raise BackboneError(str(error).replace(str(new), str(output))) from error
    except OSError as error:
        # The second name is that of a copy.
        written = error.filename2 or error.filename
        if written is not None and not str(written).startswith(str(new)):
            raise
        raise BackboneError(f"{output} cannot be written: {error.strerror}") from error


def _write(directory: Path, new: Path) -> list[dict[str, Any]]:
    weights, modules = find_weights(directory), find_module_weights(directory)
    _check_room(new, weights.num_bytes)
    copy_companions(directory, new)
    if not (new / TOKENIZER_FILE).is_file():
        write_tokenizer(directory, new)
    for file in modules:
        (new / file.target).parent.mkdir(exist_ok=True)
    written = write_safetensors([(file.source, new / file.target) for file in (*weights.files, *modules)])
    del written[len(weights.files) :]
    if weights.index is not None:
        _write_index(weights, weights.index, written, new)
    return written


def _check_room(disk: Path, num_bytes: int) -> None:
    free = shutil.disk_usage(disk).free
    if num_bytes > free:
        raise BackboneError(f"{disk} has no room: {num_bytes:,} bytes are needed, and {free:,} are free")


def _write_index(weights: WeightFiles, index: Mapping[str, str], written: list[dict[str, Any]], new: Path) -> None:
    names = {name for facts in written for name in facts["names"]}
    if missing := sorted(index.keys() - names):
        raise BackboneError(f"{weights.directory}: tensor {missing[0]!r} of the shard index is missing in the shards")
    shard_of = {name: file.target for file, one in zip(weights.files, written, strict=True) for name in one["names"]}
    total = {"total_size": sum(facts["bytes"] for facts in written)}
    (new / INDEX).write_text(json.dumps({"metadata": total, "weight_map": shard_of}, indent=2) + "\n", encoding="utf-8")


def _measure(new: Path, directory: Path, written: Sequence[Mapping[str, Any]]) -> Conversion:
    """Load it as a server does, which checks names and shapes of all tensors and reads the tokenizer."""
    from peltier_backbone.load import load_backbone

    try:
        backbone = load_backbone(str(new))
    except BackboneError as error:
        raise BackboneError(str(error).replace(str(new), str(directory))) from error
    return Conversion(
        family=backbone.config.family,
        fingerprint=backbone.fingerprint,
        num_parameters=backbone.config.num_parameters,
        dtypes=dict(sum((Counter(facts["dtypes"]) for facts in written), Counter[str]())),
        num_bytes=sum(path.stat().st_size for path in new.rglob("*") if path.is_file()),
    )


def _publish(new: Path, output: Path) -> None:
    """Move the directory to its place, where after a crash it is whole or absent."""
    for path in [*new.rglob("*"), new]:
        sync(path)
    _check_output(output)
    new.rename(output)
    sync(output.parent)
