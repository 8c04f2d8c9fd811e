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
    """x -> x W + b of each site and layer, in steps; tensors are [S, L, ...], `rule` is the one that LPHM maps share.
    What all adapters share is made on `device`."""
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
    """The steps with an activation at their end."""
    return (*steps[:-1], replace(steps[-1], activation=activation))


def build(spec: ServedMapSpec, tensors: Tensors, rule: Tensor | None) -> Tensors:
    """The tensors as they are served: a server builds them when it loads an adapter, training in each pass."""
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
    """The map's own tensors (not its bias) as their authors draw them (docs/methods.md#initialisation); `std` is that
    of a dense map."""
    gain = 2.0**0.5
    match spec:
        case DenseMap():
            return {"weight": normal(shapes["weight"], std, generator)}
        case PhmMap():
            rule = normal(shapes["rule"], 0.01, generator)
            return {"weight": xavier(shapes["weight"], gain, generator), "rule": rule}
        case LowRankMap() | LphmMap():
            return {name: xavier(shapes[name], gain, generator) for name in ("left", "right")}
