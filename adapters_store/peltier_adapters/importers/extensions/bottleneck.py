"""Makes one part of bottlenecks in any layers and sizes, and reads their maps: dense, low-rank, PHM, and factored PHM.

Scales are multiplied into the up maps. Missing layers and smaller dense sizes are padded with zeros, which is exact
because every activation is zero at zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import torch
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.imported import ImportedGate, ImportedPart, stacked, stacked_gates
from peltier_adapters.importers.shared.module_sites import ModuleSite
from peltier_adapters.spec.maps import DenseMap, LowRankMap, LphmMap, MapSpec, PhmMap
from peltier_adapters.spec.parts import BottleneckActivation, BottleneckSpec, Site

_ACTIVATIONS: dict[str, BottleneckActivation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "swish": "swish",
    "silu": "swish",
}
_SITES: tuple[Site, ...] = ("attention", "ffn")
Map = dict[str, Tensor]


@dataclass(frozen=True)
class Bottleneck:
    """One adapter. `down` and `up` are the tensors of a map and its `bias`, with the names of an artifact."""

    down: Mapping[str, Tensor]
    up: Mapping[str, Tensor]
    gate: ImportedGate | None = None


@dataclass(frozen=True)
class Kind:
    """Properties of all adapters of a checkpoint; `rule` is that of LPHM."""

    activation: BottleneckActivation
    input: Literal["output", "normed", "sum"] = "output"
    rule: Tensor | None = None


def served_activation(name: str, where: object) -> BottleneckActivation:
    if name not in _ACTIVATIONS:
        raise AdapterError(f"{where}: the activation is {name!r}; it must be one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def create_bottleneck(found: Mapping[ModuleSite, Bottleneck], kind: Kind, config: BackboneConfig) -> ImportedPart:
    """The part of the adapters `found` by site and block."""
    sites = tuple(site for site in _SITES if any(site == own for own, _ in found))
    sizes = {len(adapter.down["bias"]) for adapter in found.values()}
    map_, size = _map(found, kind), max(sizes)
    if len(sizes) > 1 and not isinstance(map_, DenseMap):
        raise AdapterError(f"bottlenecks have sizes {sorted(sizes)}; factored maps must have one size")
    gated = [adapter for adapter in found.values() if adapter.gate is not None]
    if gated and len(gated) != len(found):
        raise AdapterError(f"{len(gated)} of {len(found)} bottlenecks are gated; all or none must be")
    spec = BottleneckSpec(
        sites=sites,
        size=size,
        activation=kind.activation,
        input=kind.input,
        map=map_,
        gated=bool(gated),
        skip=min(config.place_block(block) for _, block in found),
    )
    return ImportedPart(spec, _tensors(spec, found, kind, config))


def _map(found: Mapping[ModuleSite, Bottleneck], kind: Kind) -> MapSpec:
    down = next(iter(found.values())).down
    if any(adapter.down.keys() != down.keys() or adapter.up.keys() != down.keys() for adapter in found.values()):
        raise AdapterError("the bottlenecks have maps of several kinds")
    if "rule" in down:
        return PhmMap(n=len(down["rule"]))
    if kind.rule is not None and "left" in down:
        ranks = [side["left"].shape[-1] for adapter in found.values() for side in (adapter.down, adapter.up)]
        return LphmMap(n=len(kind.rule), rank=max(ranks))
    return LowRankMap(rank=1) if "left" in down else DenseMap()


def _tensors(
    spec: BottleneckSpec, found: Mapping[ModuleSite, Bottleneck], kind: Kind, config: BackboneConfig
) -> dict[str, Tensor]:
    shapes = spec.shapes(config)
    blocks = spec.blocks(config)
    leading = (len(spec.sites), len(blocks))
    placed = {
        (spec.sites.index(cast(Site, site)), blocks.index(block)): adapter for (site, block), adapter in found.items()
    }
    tensors: dict[str, Tensor] = {} if kind.rule is None or "rule" not in shapes else {"rule": kind.rule}
    for side in ("down", "up"):
        for name in getattr(next(iter(found.values())), side):
            own = {place: getattr(adapter, side)[name] for place, adapter in placed.items()}
            tensors[f"{side}.{name}"] = stacked(own, leading, shapes[f"{side}.{name}"][2:])
    gates = {place: adapter.gate for place, adapter in placed.items() if adapter.gate is not None}
    return tensors | stacked_gates(gates, leading, config.hidden_size)


def scaled(up: Mapping[str, Tensor], scale: Tensor | float) -> dict[str, Tensor]:
    """An up map with its outputs multiplied by `scale`, which has one value or one per column. In a factored map the
    last factor is multiplied."""
    last = "weight" if "weight" in up else "right"
    columns = isinstance(scale, Tensor) and len(scale) > 1
    if isinstance(scale, Tensor) and len(scale) not in (1, len(up["bias"])):
        raise AdapterError(f"an adapter has {len(scale)} scales; it must have 1 or {len(up['bias'])}")
    if columns and ("rule" in up or last == "right"):
        raise AdapterError("a hypercomplex adapter has a scale for each column; only one for all is supported")
    return {name: tensor * scale if name in (last, "bias") else tensor for name, tensor in up.items()}


def take_maps(checkpoint: Checkpoint, down: str, up: str, hidden: int, rule: Tensor | None = None) -> tuple[Map, Map]:
    """The maps `down` and `up`, from `hidden` values to the bottleneck and back. Factored maps with a shared `rule` are
    LPHM maps."""
    first = take_map(checkpoint, down, (hidden, None), rule)
    return first, take_map(checkpoint, up, (len(first["bias"]), hidden), rule)


def take_map(checkpoint: Checkpoint, name: str, sizes: tuple[int, int | None], rule: Tensor | None = None) -> Map:
    """The map `name` with these numbers of inputs and outputs; None is any number of outputs."""
    before, after = sizes
    if f"{name}.weight" in checkpoint:
        weight = checkpoint.take(f"{name}.weight", after, before)
        return {"weight": weight.T, "bias": checkpoint.take(f"{name}.bias", len(weight))}
    bias = checkpoint.take(f"{name}.b", after)
    own = take_rule(checkpoint, f"{name}.phm_rule")
    if own is not None and rule is not None and not torch.equal(own, rule):
        raise AdapterError(f"{checkpoint.where}: tensor '{name}.phm_rule' differs from the rule that all maps share")
    if checkpoint.num_dims(f"{name}.W_left") == 2:
        return _lowrank(checkpoint, name, before, len(bias)) | {"bias": bias}
    if own is None and rule is None:
        raise AdapterError(f"{checkpoint.where}: the map {name!r} has no phm_rule, neither its own nor a shared one")
    return _phm(checkpoint, name, (before, len(bias)), own, rule) | {"bias": bias}


def take_rule(checkpoint: Checkpoint, name: str) -> Tensor | None:
    """The rule `name` [n, n, n], or None if there is none."""
    rule = checkpoint.take_if(name, None, None, None)
    if rule is not None and len(set(rule.shape)) != 1:
        raise AdapterError(f"{checkpoint.where}: tensor {name!r} has shape {list(rule.shape)}; a rule is [n, n, n]")
    return rule


def _phm(checkpoint: Checkpoint, name: str, sizes: tuple[int, int], own: Tensor | None, rule: Tensor | None) -> Map:
    whole = own if rule is None else rule
    assert whole is not None, "the caller has checked this"
    n = len(whole)
    before, after = (size // n for size in sizes)
    if f"{name}.W" in checkpoint:
        return {"weight": checkpoint.take(f"{name}.W", n, before, after), "rule": whole}
    left = checkpoint.take(f"{name}.W_left", n, before, None)
    right = checkpoint.take(f"{name}.W_right", n, left.shape[-1], after)
    if rule is None:  # a factored map with a rule of its own is a PHM map
        return {"weight": left @ right, "rule": whole}
    return {"left": left, "right": right}


def _lowrank(checkpoint: Checkpoint, name: str, before: int, after: int) -> Map:
    left = checkpoint.take(f"{name}.W_left", before, None)
    if left.shape[1] != 1:
        raise AdapterError(
            f"the low-rank map {name!r} has rank {left.shape[1]}; the authors' code multiplies its factors "
            "elementwise, which is a matrix product only for rank 1"
        )
    return {"left": left, "right": checkpoint.take(f"{name}.W_right", 1, after)}
