"""Reads and writes artifacts: safetensors files with one adapter version each."""

import json
import math
import reprlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.artifact.label_tree import target_problems
from peltier_adapters.artifact.manifest import Manifest, backbone_mismatches, read_header
from peltier_adapters.artifact.weights import Weights, layout_of
from peltier_adapters.digest import digest_of
from peltier_adapters.durable import write_file
from peltier_adapters.errors import AdapterError, ArtifactError
from peltier_adapters.spec.maps import Shapes
from peltier_adapters.spec.parts import pooler_users, tensor_shapes

_ENTRY_KEYS = frozenset({"dtype", "shape", "data_offsets"})


@dataclass(frozen=True, eq=False)
class Artifact:
    """A valid artifact, with exactly the tensors of its parts, in float32 and finite."""

    manifest: Manifest
    tensors: Mapping[str, Tensor]
    digest: str

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the tensors."""
        if isinstance(self.tensors, Weights):
            return self.tensors.nbytes
        return sum(tensor.nbytes for tensor in self.tensors.values())


def read_artifact(data: bytes, backbone: Backbone, digest: str | None = None) -> Artifact:
    """Parses and checks an artifact for `backbone`; an `ArtifactError` has every reason at once.

    Checks all shapes in the header before it reads a weight. Nothing is unpickled. `digest` is that of `data`, if the
    caller knows it because the artifact was checked before.
    """
    manifest, table = read_header(data)
    reasons = backbone_mismatches(manifest, backbone.config, backbone.fingerprint)
    if manifest.backbone.family == backbone.config.family:  # otherwise every tensor would be a reason
        shapes = tensor_shapes(manifest.parts, backbone.config)
        reasons += _needs_pooler(manifest, backbone) + _table_reasons(table, shapes)
        reasons += target_problems(manifest.task, backbone)
    if reasons:
        raise ArtifactError(reasons)
    pieces = _pieces(data, table)
    if digest is None:
        _require_readable(data)
    weights = Weights(layout_of(manifest.parts, backbone.config), pieces)
    # The sum is finite only if all values are. This is twenty times as fast as checking each value.
    infinite = [] if math.isfinite(float(weights.flat.sum())) else _infinite(weights)
    if infinite:
        raise ArtifactError([f"tensor {name!r} has values that are NaN or infinite" for name in infinite])
    return Artifact(manifest, weights, digest or digest_of(data))


def load_artifact(path: Path, backbone: Backbone) -> Artifact:
    """Calls `read_artifact` with the bytes of a file."""
    try:
        return read_artifact(path.read_bytes(), backbone)
    except OSError as error:
        raise ArtifactError([f"{path} cannot be read: {error.strerror}"]) from None


def _infinite(tensors: Mapping[str, Tensor]) -> list[str]:
    return sorted(name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all()))


def _needs_pooler(manifest: Manifest, backbone: Backbone) -> list[str]:
    users = pooler_users(manifest.parts) if _lacks_pooler(backbone) else []
    return [f"part {kind!r} needs a pooler, which this backbone's checkpoint does not have" for kind in users]


def _lacks_pooler(backbone: Backbone) -> bool:
    return not backbone.config.generates and backbone.bert.pooler is None


def _table_reasons(table: dict[str, Any], shapes: Shapes) -> list[str]:
    reasons = [f"tensor {name!r} is missing" for name in shapes if name not in table]
    reasons += [f"tensor {reprlib.repr(name)} belongs to no part" for name in table if name not in shapes]
    for name in shapes.keys() & table.keys():
        entry = table[name]
        if entry["shape"] != list(shapes[name]):
            found = reprlib.repr(entry["shape"])
            reasons.append(f"tensor {name!r} has shape {found}; its part requires {list(shapes[name])}")
        elif not _spans(entry.get("data_offsets"), 4 * prod(shapes[name])):
            found = reprlib.repr(entry.get("data_offsets"))
            reasons.append(f"tensor {name!r} has data_offsets {found}; its shape takes {4 * prod(shapes[name])} bytes")
        if entry.get("dtype") != "F32":
            reasons.append(f"tensor {name!r} has dtype {_shown(entry.get('dtype'))}; artifacts hold F32")
        reasons += _unknown_keys(name, entry)
    return sorted(reasons)


def _spans(offsets: object, num_bytes: int) -> bool:
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(offset) is int for offset in offsets):
        return False
    return bool(offsets[1] - offsets[0] == num_bytes)


def _pieces(data: bytes, table: dict[str, Any]) -> dict[str, memoryview]:
    """The bytes of each tensor, which must be contiguous and fill the file."""
    body = memoryview(data)[8 + struct.unpack_from("<Q", data)[0] :]
    pieces, after = {}, 0
    for name, entry in sorted(table.items(), key=lambda item: item[1]["data_offsets"][0]):
        begin, end = entry["data_offsets"]
        if begin != after:
            raise ArtifactError([f"tensor {name!r} begins at byte {begin}; the tensors before it end at byte {after}"])
        pieces[name], after = body[begin:end], end
    if after != len(body):
        raise ArtifactError([f"the header describes {after} bytes of tensors; the file has {len(body)}"])
    return pieces


def _require_readable(data: bytes) -> None:
    """Refuses files that the safetensors library cannot read."""
    try:
        safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise ArtifactError([f"the file is not a valid safetensors file: {error}"]) from None


def _unknown_keys(name: str, entry: dict[str, Any]) -> list[str]:
    return [f"tensor {name!r} has an unknown key {reprlib.repr(key)}" for key in entry if key not in _ENTRY_KEYS]


def _shown(dtype: object) -> str:
    return dtype if isinstance(dtype, str) else reprlib.repr(dtype)


def to_bytes(manifest: Manifest, tensors: Mapping[str, Tensor]) -> bytes:
    """The bytes of an artifact. The same manifest and tensors give the same bytes."""
    metadata = {"format": "peltier", "manifest": json.dumps(manifest.model_dump(mode="json"), sort_keys=True)}
    ready = {name: tensor.detach().float().cpu().contiguous() for name, tensor in sorted(tensors.items())}
    return _ordered(bytes(safetensors.torch.save(ready, metadata=metadata)))


def _ordered(data: bytes) -> bytes:
    """The same file with sorted keys in its header, because safetensors writes the metadata in random order."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.dumps(json.loads(data[8 : 8 + length]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def write_artifact(path: Path, manifest: Manifest, tensors: Mapping[str, Tensor]) -> None:
    """Writes the file atomically: a reader sees the old file or the complete new one."""
    try:
        write_file(path, to_bytes(manifest, tensors))
    except OSError as error:
        raise AdapterError(f"{path} cannot be written: {error.strerror}") from None
