"""Reads and writes artifacts: safetensors files with one adapter version each."""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.artifact.label_tree import target_problems
from peltier_adapters.artifact.manifest import Header, Manifest, backbone_mismatches, split_file
from peltier_adapters.artifact.placement import Placement, place_tensors, table_reasons
from peltier_adapters.artifact.source import ByteSource, MemorySource, digest_of
from peltier_adapters.artifact.weights import AdapterWeights
from peltier_adapters.durable import write_file
from peltier_adapters.errors import AdapterError, ArtifactError
from peltier_adapters.spec.parts import pooler_users

# torch divides longer sums between threads, which wait for each other for milliseconds while all cores are busy.
_SERIAL_ELEMENTS = 32_767


@dataclass(frozen=True, eq=False)
class Artifact:
    """A valid artifact, with exactly the tensors of its parts, in float32 and finite."""

    manifest: Manifest
    tensors: Mapping[str, Tensor]
    digest: str

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the tensors."""
        if isinstance(self.tensors, AdapterWeights):
            return self.tensors.nbytes
        return sum(tensor.nbytes for tensor in self.tensors.values())


def read_artifact(data: bytes, backbone: Backbone) -> Artifact:
    """Parses and checks an artifact for `backbone`; an `ArtifactError` has every reason at once.

    Checks all shapes in the header before it reads a weight. Nothing is unpickled.
    """
    source = MemorySource(data)
    header = split_file(source)
    manifest, placement = _check(header, backbone)
    _require_readable(data)
    weights = AdapterWeights(placement.layout)
    source.read_into(weights.pieces(placement.spans), lambda: _require_finite(weights))
    return Artifact(manifest, weights, digest_of(data))


def load_stored(source: ByteSource, backbone: Backbone, digest: str) -> Artifact:
    """What `read_artifact` returns, for bytes with this digest that it accepted before they were stored. Checks them
    again, except that the safetensors library can read them; raises ArtifactError.

    Copies each weight once, from `source` to its place in memory, and checks the manifest meanwhile.
    """
    header = split_file(source)
    placement = place_tensors(header.table)
    if placement is None or placement.problem(header.num_bytes):
        _check(header, backbone)
    assert placement is not None, "such a table is refused"
    weights = AdapterWeights(placement.layout)

    def check() -> Manifest:
        manifest, _ = _check(header, backbone)
        _require_finite(weights)
        return manifest

    return Artifact(source.read_into(weights.pieces(placement.spans), check), weights, digest)


def load_artifact(path: Path, backbone: Backbone) -> Artifact:
    """Calls `read_artifact` with the bytes of a file."""
    try:
        return read_artifact(path.read_bytes(), backbone)
    except OSError as error:
        raise ArtifactError([f"{path} cannot be read: {error.strerror}"]) from None


def _check(header: Header, backbone: Backbone) -> tuple[Manifest, Placement]:
    """The manifest and the places of the tensors, if both are valid for `backbone`."""
    manifest = header.validate()
    reasons = backbone_mismatches(manifest, backbone.config, backbone.fingerprint)
    if manifest.backbone.family == backbone.config.family:  # otherwise every tensor would be a reason
        lacks_pooler = not backbone.config.generates and backbone.bert.pooler is None
        users = pooler_users(manifest.parts) if lacks_pooler else []
        reasons += [f"part {kind!r} needs a pooler, which this backbone's checkpoint does not have" for kind in users]
        reasons += table_reasons(header.table, manifest.parts, backbone.config)
        reasons += target_problems(manifest.task, backbone)
    placement = None if reasons else place_tensors(header.table)
    if placement is not None and (problem := placement.problem(header.num_bytes)):
        reasons = [problem]
    if reasons:
        raise ArtifactError(reasons)
    assert placement is not None, "a table without reasons has valid entries"
    return manifest, placement


def _require_finite(weights: AdapterWeights) -> None:
    # A sum is finite only if all values are. This is ten times as fast as checking each value.
    runs = (weights.flat[start : start + _SERIAL_ELEMENTS] for start in range(0, len(weights.flat), _SERIAL_ELEMENTS))
    if all(math.isfinite(float(run.sum())) for run in runs):
        return
    infinite = sorted(name for name, tensor in weights.items() if not bool(torch.isfinite(tensor).all()))
    if infinite:
        raise ArtifactError([f"tensor {name!r} has values that are NaN or infinite" for name in infinite])


def _require_readable(data: bytes) -> None:
    """Refuses files that the safetensors library cannot read."""
    try:
        safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise ArtifactError([f"the file is not a valid safetensors file: {error}"]) from None


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
