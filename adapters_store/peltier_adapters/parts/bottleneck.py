"""Bottleneck adapters: y + up(act(down(x))) at the output of a sub-layer (Houlsby et al. 2019, Pfeiffer et al. 2021;
docs/methods/houlsby.md). The maps down and up are dense, low-rank, or Compacter's (`compacter.py`)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Literal

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.linear.activation import Activation
from torch import Tensor

from peltier_adapters.ops.op import FusedMatmul, MatmulStep, Normed
from peltier_adapters.parts import gate
from peltier_adapters.parts.compacter import fold, folded_steps, kronecker
from peltier_adapters.parts.part import LoweringContext, PartTensors, normal, under, xavier
from peltier_adapters.spec.maps import (
    DenseMap,
    FoldedLphmMap,
    LowRankMap,
    LphmMap,
    MapSpec,
    PhmMap,
    ServedMapSpec,
    TensorShape,
)
from peltier_adapters.spec.parts import BottleneckSpec

_SHARED_RULE_STD = 1e-4
# T5 adapters start closer to the identity than BERT's (docs/methods.md#initialisation).
_TEXT_STD, _ENCODER_STD = 0.01, 0.02
_SIDES = ("down", "up")
# The norm after each of BERT's sub-layers, counted within a layer; number 0 is the norm of the embeddings.
_NORM_AFTER = {"attention": 1, "ffn": 2}
MapSteps = tuple[MatmulStep, ...]


def init(spec: BottleneckSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Fresh tensors: an LPHM adapter starts within 1e-5 of the identity, the others near it."""
    shapes, std = spec.shapes(backbone.config), _TEXT_STD if backbone.config.generates else _ENCODER_STD
    tensors = {name: torch.zeros(shape) for name, shape in shapes.items() if name.endswith("bias")}
    for side in _SIDES:
        own = {name.removeprefix(f"{side}."): shape for name, shape in shapes.items() if name.startswith(side)}
        tensors |= {f"{side}.{name}": tensor for name, tensor in init_map(spec.map, own, std, generator).items()}
    if "rule" in shapes:
        tensors["rule"] = normal(shapes["rule"], _SHARED_RULE_STD, generator)
    return tensors | gate.init(shapes, generator)


def lower(spec: BottleneckSpec, tensors: PartTensors, context: LoweringContext) -> Iterator[FusedMatmul]:
    """One op for each site of each block that has an adapter; tensors are [S, B, ...]."""
    rule, gates, device = tensors.get("rule"), gate.PartGates(tensors), context.backbone.device
    downs, ups = (lower_maps(spec.map, under(f"{side}.", tensors), rule, device) for side in _SIDES)
    places = product(spec.sites, spec.blocks(context.backbone.config))
    for place, (down, up, (site, block)) in enumerate(zip(downs, ups, places, strict=True)):
        yield FusedMatmul(
            site, block, (*activated(down, spec.activation), *up), reads=_reads(spec, site, block, context),
            gate=gates(place, f"bottleneck.{site}", block),
        )  # fmt: skip


def _reads(spec: BottleneckSpec, site: str, block: int, context: LoweringContext) -> Literal["x", "sum"] | Normed:
    match spec.input:
        case "output":
            return "x"
        case "sum":
            return "sum"
        case "normed":
            index = 2 * block + _NORM_AFTER[site]
            return Normed(index, context.backbone.model.norms()[index])


def build(spec: BottleneckSpec, tensors: PartTensors) -> dict[str, Tensor]:
    """The tensors in their served form (`served_parts`)."""
    rule, built = tensors.get("rule"), {name: one for name, one in tensors.items() if name.startswith("gate.")}
    for side in _SIDES:
        own = build_map(spec.map, under(f"{side}.", tensors), rule)
        built |= {f"{side}.{name}": one for name, one in own.items()}
    return built


def lower_maps(
    spec: ServedMapSpec, tensors: PartTensors, rule: Tensor | None, device: torch.device
) -> Sequence[MapSteps]:
    """The steps of x W + b for each site and layer; tensors are [S, L, ...], and `rule` is the rule that all LPHM maps
    share. Constants that all adapters share are created on `device`."""
    built = build_map(spec, tensors, rule)
    match spec:
        case DenseMap() | PhmMap():
            return [(MatmulStep(weight, bias),) for weight, bias in _unbind(built, "weight", "bias")]
        case LowRankMap():
            # W = left right, of rank r
            found = _unbind(built, "left", "right", "bias")
            return [(MatmulStep(left), MatmulStep(right, bias)) for left, right, bias in found]
        case LphmMap(n=n) | FoldedLphmMap(n=n):
            return folded_steps(built, n, device)


def activated(steps: MapSteps, activation: Activation) -> MapSteps:
    """The steps with `activation` after the last one."""
    return (*steps[:-1], replace(steps[-1], activation=activation))


def build_map(spec: ServedMapSpec, tensors: PartTensors, rule: Tensor | None) -> PartTensors:
    """The tensors in their served form. A server builds them when it loads an adapter, training in each pass."""
    match spec:
        case PhmMap():
            return {"weight": kronecker(tensors["rule"], tensors["weight"]), "bias": tensors["bias"]}
        case LphmMap():
            assert rule is not None, "the spec of a bottleneck has it"
            return fold(tensors, rule)
        case _:
            return tensors


def _unbind(tensors: PartTensors, *names: str) -> list[tuple[Tensor, ...]]:
    """The tensors of these names, for each site and layer."""
    return list(zip(*(tensors[name].flatten(0, 1).unbind() for name in names), strict=True))


def init_map(
    spec: MapSpec, shapes: dict[str, TensorShape], std: float, generator: torch.Generator
) -> dict[str, Tensor]:
    """Fresh tensors of the map, without its bias, initialised as its authors do (docs/methods.md#initialisation); `std`
    is that of a dense map."""
    gain = 2.0**0.5
    match spec:
        case DenseMap():
            return {"weight": normal(shapes["weight"], std, generator)}
        case PhmMap():
            rule = normal(shapes["rule"], 0.01, generator)
            return {"weight": xavier(shapes["weight"], gain, generator), "rule": rule}
        case LowRankMap() | LphmMap():
            return {name: xavier(shapes[name], gain, generator) for name in ("left", "right")}
