"""Bottlenecks of any layers and sizes as one part: scales go into the up maps, missing layers and dense sizes are
filled with zeros (exact, for every activation is zero at zero)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from peltier_backbone.config import BackboneConfig
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.module_sites import ModuleSite
from peltier_adapters.importers.parts.gate import Gate, stacked_gates
from peltier_adapters.importers.parts.imported_part import ImportedPart, stacked
from peltier_adapters.spec.maps import DenseMap, LowRankMap, LphmMap, MapSpec, PhmMap
from peltier_adapters.spec.parts import Activation, BottleneckSpec, Site

_ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "swish": "swish",
    "silu": "swish",
}
_SITES: tuple[Site, ...] = ("attention", "ffn")


@dataclass(frozen=True)
class Bottleneck:
    """One adapter; `down` and `up` have the tensors of a map and its `bias`, as an artifact names them."""

    down: Mapping[str, Tensor]
    up: Mapping[str, Tensor]
    gate: Gate | None = None


@dataclass(frozen=True)
class Kind:
    """What all adapters of one checkpoint share; `rule` is LPHM's."""

    activation: Activation
    input: Literal["output", "normed", "sum"] = "output"
    rule: Tensor | None = None


def served_activation(name: str, where: object) -> Activation:
    """The activation by the name that a foreign configuration gives it."""
    if name not in _ACTIVATIONS:
        raise AdapterError(f"{where}: the activation is {name!r}; it must be one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def create_bottleneck(found: Mapping[ModuleSite, Bottleneck], kind: Kind, config: BackboneConfig) -> ImportedPart:
    """The part of the adapters `found` by site and block."""
    sites = tuple(site for site in _SITES if any(site == own for own, _ in found))
    sizes = {len(one.down["bias"]) for one in found.values()}
    map_, size = _map(found, kind), max(sizes)
    if len(sizes) > 1 and not isinstance(map_, DenseMap):
        raise AdapterError(f"bottlenecks of sizes {sorted(sizes)} are not of one size, which their factors must be")
    gated = [one for one in found.values() if one.gate is not None]
    if gated and len(gated) != len(found):
        raise AdapterError(f"{len(gated)} of {len(found)} bottlenecks are gated; it must be all or none")
    spec = BottleneckSpec(
        sites=sites,
        size=size,
        activation=kind.activation,
        input=kind.input,
        map=map_,
        gated=bool(gated),
        skip=_skip({block for _, block in found}, config),
    )
    return ImportedPart(spec, _tensors(spec, found, kind, config))


def _map(found: Mapping[ModuleSite, Bottleneck], kind: Kind) -> MapSpec:
    down = next(iter(found.values())).down
    if any(one.down.keys() != down.keys() or one.up.keys() != down.keys() for one in found.values()):
        raise AdapterError("the bottlenecks' maps are not all of one kind")
    if "rule" in down:
        return PhmMap(n=len(down["rule"]))
    if kind.rule is not None and "left" in down:
        ranks = [side["left"].shape[-1] for one in found.values() for side in (one.down, one.up)]
        return LphmMap(n=len(kind.rule), rank=max(ranks))
    return LowRankMap(rank=1) if "left" in down else DenseMap()


def _skip(blocks: set[int], config: BackboneConfig) -> int:
    """How many blocks at the beginning of every stack have no adapter."""
    stacks = [range(config.num_layers), range(config.num_layers, config.num_blocks)]
    return min(
        next((place for place, block in enumerate(stack) if block in blocks), len(stack)) for stack in stacks if stack
    )


def _tensors(
    spec: BottleneckSpec, found: Mapping[ModuleSite, Bottleneck], kind: Kind, config: BackboneConfig
) -> dict[str, Tensor]:
    shapes = spec.shapes(config)
    blocks = spec.blocks(config)
    leading = (len(spec.sites), len(blocks))
    placed = {(spec.sites.index(cast(Site, site)), blocks.index(block)): one for (site, block), one in found.items()}
    tensors: dict[str, Tensor] = {} if kind.rule is None or "rule" not in shapes else {"rule": kind.rule}
    for side in ("down", "up"):
        for name in getattr(next(iter(found.values())), side):
            own = {place: getattr(one, side)[name] for place, one in placed.items()}
            tensors[f"{side}.{name}"] = stacked(own, leading, shapes[f"{side}.{name}"][2:])
    gates = {place: one.gate for place, one in placed.items() if one.gate is not None}
    return tensors | stacked_gates(gates, leading, config.hidden_size)


def scaled(up: Mapping[str, Tensor], scale: Tensor | float) -> dict[str, Tensor]:
    """An up map whose outputs are multiplied by `scale`, one value or one a column; a factored map by its last
    factor."""
    last = "weight" if "weight" in up else "right"
    columns = isinstance(scale, Tensor) and len(scale) > 1
    if isinstance(scale, Tensor) and len(scale) not in (1, len(up["bias"])):
        raise AdapterError(f"an adapter has {len(scale)} scales; it must be one, or one for each of {len(up['bias'])}")
    if columns and ("rule" in up or last == "right"):
        raise AdapterError("a hypercomplex adapter has a scale for each column; served is one for all")
    return {name: tensor * scale if name in (last, "bias") else tensor for name, tensor in up.items()}
