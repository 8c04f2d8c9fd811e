"""Builds the tensors that a server keeps of an adapter (`served_parts`) when it loads the adapter."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

from peltier_adapters.artifact.weights import AdapterWeights, layout_of
from peltier_adapters.ops import choice
from peltier_adapters.ops.backend import Backend
from peltier_adapters.parts import bottleneck, vera
from peltier_adapters.spec.parts import BottleneckSpec, Parts, VeraSpec, served_parts

# The parts whose tensors are built, and the kinds of served parts with another name.
_BUILT = ("bottleneck.", "vera.")
_SERVED_KINDS = {"vera": "lora"}


def device_bytes(parts: Parts, backbone: Backbone) -> int:
    """The bytes of an adapter with these parts on the device of `backbone`: whole pages on the CPU, and on a GPU its
    elements in the precision of their backend."""
    served = served_parts(parts)
    if backbone.device.type == "cpu":
        return layout_of(served, backbone.config).nbytes
    pieces = [(layout_of(own, backbone.config).length, find_backend(own, backbone)) for own in split_head(served)]
    return sum(length * chosen.element_bytes for length, chosen in pieces)


@lru_cache(maxsize=1024)
def split_head(parts: Parts) -> tuple[Parts, Parts]:
    """The body and the head; a T5 has no head."""
    head = tuple(part for part in parts if part.kind == "head")
    return tuple(part for part in parts if part.kind != "head"), head


def find_backend(parts: Parts, backbone: Backbone) -> Backend:
    """The backend of a body or of a head. Heads compute in float32."""
    is_head = any(part.kind == "head" for part in parts)
    return choice.choose_backend(backbone.device, torch.float32 if is_head else backbone.dtype)


def build_served(parts: Parts, tensors: Mapping[str, Tensor], config: BackboneConfig) -> AdapterWeights:
    """The tensors of `served_parts(parts)`, built from the `tensors` of `parts`."""
    own = tensors if isinstance(tensors, AdapterWeights) else AdapterWeights.copy(layout_of(parts, config), tensors)
    weights = AdapterWeights(layout_of(served_parts(parts), config))
    for before, after in _unbuilt(parts, config):
        weights.flat[after].copy_(own.flat[before])
    for part in parts:
        given = {name: own[f"{part.kind}.{name}"] for name in part.shapes(config)}
        match part:
            case BottleneckSpec():
                built = bottleneck.build(part, given)
            case VeraSpec():
                built = vera.build(part, given, config)
            case _:
                continue
        for name, tensor in built.items():
            weights[f"{_SERVED_KINDS.get(part.kind, part.kind)}.{name}"].copy_(tensor)
    return weights


@lru_cache(maxsize=256)
def _unbuilt(parts: Parts, config: BackboneConfig) -> Sequence[tuple[slice, slice]]:
    """The elements of the parts that are served as they are, before and after, in as few runs as possible."""
    before, after = layout_of(parts, config), layout_of(served_parts(parts), config)
    runs: list[tuple[slice, slice]] = []
    for name in before:
        if not name.startswith(_BUILT):
            one, other = before.block(name), after.block(name)
            if runs and (runs[-1][0].stop, runs[-1][1].stop) == (one.start, other.start):
                one, other = slice(runs[-1][0].start, one.stop), slice(runs.pop()[1].start, other.stop)
            runs.append((one, other))
    return runs
