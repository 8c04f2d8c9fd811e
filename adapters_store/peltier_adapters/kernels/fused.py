"""Bottlenecks that run in one launch: which they are, and their tensors made ready once a batch."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from peltier_adapters.kernels import bottleneck, compacter
from peltier_adapters.kernels.choice import MAX_SIZE
from peltier_adapters.kernels.runs import Runs
from peltier_adapters.parts.maps import ContractingLphm, Dense, ExpandingLphm, Map

# Whether a Compacter's maps are built once a batch and multiplied as dense ones. Not until it is faster on some card:
# `python benchmarks/gpu.py`, section "batch", "mixed" against "compacters built".
BUILD_COMPACTERS = False

# (y, x, site, layer, scale [tokens, 1] or None): add the bottleneck of x to y, in place.
Fused = Callable[[Tensor, Tensor, int, int, Tensor | None], None]


def fuse(down: Map, up: Map, activation: str, runs: Runs) -> Fused | None:
    """The kernel of this pair of maps; None where there is none, or where what is between them would not fit."""
    match down, up:
        case Dense(), Dense() if down.weight.shape[-1] <= MAX_SIZE:
            return _dense((down.weight, down.bias, up.weight, up.bias), activation, runs)
        case ContractingLphm(), ExpandingLphm() if BUILD_COMPACTERS and down.right.shape[-1] <= MAX_SIZE:
            return _dense((*_build_down(down), *_build_up(up)), activation, runs)
        case ContractingLphm(), ExpandingLphm() if _fits(down, up):
            return _lphm(down, up, activation, runs)
        case _:
            return None


def _fits(down: ContractingLphm, up: ExpandingLphm) -> bool:
    return max(down.right.shape[-1], down.left.shape[-1], up.right.shape[-2]) <= MAX_SIZE


def _build_down(down: ContractingLphm) -> tuple[Tensor, Tensor]:
    """W [G, S, L, width, size] and its bias, as `ContractingLphm` multiplies them."""
    blocks = down.right.unflatten(-2, (-1, down.left.shape[-1]))
    return torch.einsum("gslpr,gslaro->gslapo", down.left, blocks).flatten(-3, -2), down.bias


def _build_up(up: ExpandingLphm) -> tuple[Tensor, Tensor]:
    """W [G, S, L, size, width] and its bias, as `ExpandingLphm` multiplies them."""
    blocks, ones = (own.unflatten(-1, (-1, up.right.shape[-2])) for own in (up.left, up.ones))
    weight = torch.einsum("gslicr,gslrp->gslicp", blocks, up.right).flatten(-2)
    return weight, torch.einsum("gcr,gslrp->gslcp", ones, up.right).flatten(-2)


def _dense(maps: Sequence[Tensor], activation: str, runs: Runs) -> Fused:
    tensors = [tensor.contiguous() for tensor in maps]

    def add(y: Tensor, x: Tensor, site: int, layer: int, scale: Tensor | None) -> None:
        own = bottleneck.Maps(*(tensor[:, site, layer] for tensor in tensors))
        bottleneck.bottleneck(y, x, own, activation, runs, scale)

    return add


def _lphm(down: ContractingLphm, up: ExpandingLphm, activation: str, runs: Runs) -> Fused:
    first, rule_down, bias, rule_up, second = (
        tensor.contiguous() for tensor in (down.left, down.right, down.bias, up.left, up.right)
    )
    ones = up.ones.contiguous()

    def add(y: Tensor, x: Tensor, site: int, layer: int, scale: Tensor | None) -> None:
        a, b, c, d, e = (tensor[:, site, layer] for tensor in (first, rule_down, bias, rule_up, second))
        own = compacter.Maps(a, b, c, d, ones, e)
        compacter.compacter(y, x, own, activation, runs, scale)

    return add
