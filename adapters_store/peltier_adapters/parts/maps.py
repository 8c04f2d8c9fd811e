"""The linear maps inside a bottleneck: dense, low-rank, and Compacter's (`compacter.py`)."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from peltier_backbone.native.program import Activation
from torch import Tensor

from peltier_adapters.ops.op import MatmulStep
from peltier_adapters.parts.compacter import fold, folded_steps, kronecker
from peltier_adapters.parts.part import Tensors, normal, xavier
from peltier_adapters.spec.maps import (
    DenseMap,
    FoldedLphmMap,
    LowRankMap,
    LphmMap,
    MapSpec,
    PhmMap,
    ServedMapSpec,
    Shape,
)

Steps = tuple[MatmulStep, ...]


def lower(spec: ServedMapSpec, tensors: Tensors, rule: Tensor | None, device: torch.device) -> Sequence[Steps]:
    """The steps of x W + b for each site and layer; tensors are [S, L, ...], and `rule` is the rule that all LPHM maps
    share. Constants that all adapters share are created on `device`."""
    built = build(spec, tensors, rule)
    match spec:
        case DenseMap() | PhmMap():
            return [(MatmulStep(weight, bias),) for weight, bias in _unbind(built, "weight", "bias")]
        case LowRankMap():
            # W = left right, of rank r
            found = _unbind(built, "left", "right", "bias")
            return [(MatmulStep(left), MatmulStep(right, bias)) for left, right, bias in found]
        case LphmMap(n=n) | FoldedLphmMap(n=n):
            return folded_steps(built, n, device)


def activated(steps: Steps, activation: Activation) -> Steps:
    """The steps with `activation` after the last one."""
    return (*steps[:-1], replace(steps[-1], activation=activation))


def build(spec: ServedMapSpec, tensors: Tensors, rule: Tensor | None) -> Tensors:
    """The tensors in their served form. A server builds them when it loads an adapter, training in each pass."""
    match spec:
        case PhmMap():
            return {"weight": kronecker(tensors["rule"], tensors["weight"]), "bias": tensors["bias"]}
        case LphmMap():
            assert rule is not None, "the spec of a bottleneck has it"
            return fold(tensors, rule)
        case _:
            return tensors


def _unbind(tensors: Tensors, *names: str) -> list[tuple[Tensor, ...]]:
    """The tensors of these names, for each site and layer."""
    return list(zip(*(tensors[name].flatten(0, 1).unbind() for name in names), strict=True))


def init(spec: MapSpec, shapes: dict[str, Shape], std: float, generator: torch.Generator) -> dict[str, Tensor]:
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
