"""The linear maps inside a bottleneck: dense, low-rank, PHM, and LPHM in factored form.

Tensors arrive as [G, S, L, …] (groups, sites, layers). A map is prepared once a batch and called per site and layer.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Protocol

import torch
from peltier_backbone.native.chain import Product
from peltier_backbone.native.library import Activation
from peltier_backbone.native.scattered import Scattered
from torch import Tensor

from peltier_adapters.map_spec import (
    DenseMap,
    FoldedLphmMap,
    LowRankMap,
    LphmMap,
    MapSpec,
    PhmMap,
    ServedMapSpec,
    Shape,
)
from peltier_adapters.parts.part import normal, xavier
from peltier_adapters.segments import Segments
from peltier_adapters.tensors import Tensors


class Map(Protocol):
    """x [tokens, in] -> act(x W + b), [tokens, out]."""

    def __call__(self, x: Tensor, site: int, layer: int, activation: Activation = "none") -> Tensor: ...

    def add(self, y: Tensor, x: Tensor, site: int, layer: int, scale: Tensor | None = None) -> None:
        """y += (x W + b) * scale, in place; `scale` is [tokens, 1]."""

    def products(self, site: int, activation: Activation = "none") -> tuple[Product, ...]:
        """What the map of `site` is made of, for all layers."""


class Dense:
    """W stored as it is, under the name `weight` among the tensors, beside its bias."""

    def __init__(self, tensors: Tensors, segments: Segments, dtype: torch.dtype, weight: str = "weight") -> None:
        self._tensors, self._segments, self._dtype, self._name = tensors, segments, dtype, weight

    @cached_property
    def weight(self) -> Tensor:
        """[G, S, L, in, out]."""
        return self._tensors[self._name].to(self._dtype)

    @cached_property
    def bias(self) -> Tensor:
        """[G, S, L, out]."""
        return self._tensors["bias"].to(self._dtype)

    def __call__(self, x: Tensor, site: int, layer: int, activation: Activation = "none") -> Tensor:
        weight, bias = self.weight[:, site, layer], self.bias[:, site, layer]
        return self._segments.linear(x, weight, bias, activation=activation)

    def add(self, y: Tensor, x: Tensor, site: int, layer: int, scale: Tensor | None = None) -> None:
        self._segments.add_linear(y, x, self.weight[:, site, layer], self.bias[:, site, layer], scale=scale)

    def products(self, site: int, activation: Activation = "none") -> tuple[Product, ...]:
        weight, bias = self._tensors.apart(self._name), self._tensors.apart("bias")
        return (Product(weight[site], bias[site], activation=activation),)


class LowRank:
    """W = left right, applied as two products."""

    def __init__(self, tensors: Tensors, segments: Segments, dtype: torch.dtype) -> None:
        self._tensors, self._segments, self._dtype = tensors, segments, dtype
        self._right = Dense(tensors, segments, dtype, "right")

    @cached_property
    def _left(self) -> Tensor:
        return self._tensors["left"].to(self._dtype)

    def _inner(self, x: Tensor, site: int, layer: int) -> Tensor:
        return self._segments.linear(x, self._left[:, site, layer])

    def __call__(self, x: Tensor, site: int, layer: int, activation: Activation = "none") -> Tensor:
        return self._right(self._inner(x, site, layer), site, layer, activation)

    def add(self, y: Tensor, x: Tensor, site: int, layer: int, scale: Tensor | None = None) -> None:
        self._right.add(y, self._inner(x, site, layer), site, layer, scale)

    def products(self, site: int, activation: Activation = "none") -> tuple[Product, ...]:
        return (Product(self._tensors.apart("left")[site]), *self._right.products(site, activation))


class ContractingLphm:
    """W = sum_i rule_i (x) (left_i right_i) from a wide input: first left on each of the n input blocks, then the rule
    and right as one small matrix [n*n*r, out]. Exact; W is never built (methods.md 1.7). The tensors are those that
    `fold` makes."""

    def __init__(self, tensors: Tensors, segments: Segments, dtype: torch.dtype) -> None:
        self._tensors, self._segments, self._dtype = tensors, segments, dtype

    @cached_property
    def left(self) -> Tensor:
        """[G, S, L, in / n, n r]."""
        return self._tensors["left"].to(self._dtype)

    @cached_property
    def right(self) -> Tensor:
        """[G, S, L, n n r, out]."""
        return self._tensors["right"].to(self._dtype)

    @cached_property
    def bias(self) -> Tensor:
        """[G, S, L, out]."""
        return self._tensors["bias"].to(self._dtype)

    def _inner(self, x: Tensor, site: int, layer: int) -> Tensor:
        left = self.left[:, site, layer]
        fold = x.shape[-1] // left.shape[-2]
        return self._segments.linear(x.reshape(-1, left.shape[-2]), left, fold=fold).view(len(x), -1)

    def __call__(self, x: Tensor, site: int, layer: int, activation: Activation = "none") -> Tensor:
        right, bias = self.right[:, site, layer], self.bias[:, site, layer]
        return self._segments.linear(self._inner(x, site, layer), right, bias, activation=activation)

    def add(self, y: Tensor, x: Tensor, site: int, layer: int, scale: Tensor | None = None) -> None:
        right, bias = self.right[:, site, layer], self.bias[:, site, layer]
        self._segments.add_linear(y, self._inner(x, site, layer), right, bias, scale=scale)

    def products(self, site: int, activation: Activation = "none") -> tuple[Product, ...]:
        left, right, bias = (self._tensors.apart(name)[site] for name in ("left", "right", "bias"))
        fold = right.first.shape[-2] // left.first.shape[-1]
        return (Product(left, fold=fold), Product(right, bias, activation=activation))


class ExpandingLphm:
    """The same map towards a wide output: left and the rule as one small matrix, then right on each output block.

    The bias rides along as n more rows of `right`, switched on by a constant one per block in the inner vector, so
    that the whole map ends in one product that adds to `y`.
    """

    def __init__(self, tensors: Tensors, n: int, segments: Segments, dtype: torch.dtype) -> None:
        self._tensors, self._n, self._segments, self._dtype = tensors, n, segments, dtype

    @cached_property
    def left(self) -> Tensor:
        """[G, S, L, in, n (n r + n)]."""
        return self._tensors["left"].to(self._dtype)

    @cached_property
    def right(self) -> Tensor:
        """[G, S, L, n r + n, out / n]."""
        return self._tensors["right"].to(self._dtype)

    @cached_property
    def ones(self) -> Tensor:
        """The constant inner vector, [G, n (n r + n)]."""
        eye = torch.eye(self._n, dtype=self._dtype, device=self._segments.device)
        inner = self._tensors.shape("right")[-2] - self._n
        ones = torch.cat((eye.new_zeros(self._n, inner), eye), -1).view(1, -1)
        return ones.expand(self._segments.num_groups, -1)

    def _inner(self, x: Tensor, site: int, layer: int) -> Tensor:
        return self._segments.linear(x, self.left[:, site, layer], self.ones)

    def __call__(self, x: Tensor, site: int, layer: int, activation: Activation = "none") -> Tensor:
        inner, right = self._inner(x, site, layer), self.right[:, site, layer]
        blocks, fold = inner.view(-1, right.shape[-2]), inner.shape[-1] // right.shape[-2]
        return self._segments.linear(blocks, right, fold=fold, activation=activation).view(len(x), -1)

    def add(self, y: Tensor, x: Tensor, site: int, layer: int, scale: Tensor | None = None) -> None:
        inner, right = self._inner(x, site, layer), self.right[:, site, layer]
        scaled = inner if scale is None else inner * scale
        blocks, fold = scaled.view(-1, right.shape[-2]), inner.shape[-1] // right.shape[-2]
        self._segments.add_linear(y.view(-1, right.shape[-1]), blocks, right, fold=fold)

    def products(self, site: int, activation: Activation = "none") -> tuple[Product, ...]:
        left, right = (self._tensors.apart(name)[site] for name in ("left", "right"))
        ones = Scattered.of(self.ones[:, None].expand(-1, len(left.first), -1))
        return (Product(left, ones), Product(right, fold=self._n, activation=activation))


def prepare(spec: ServedMapSpec, tensors: Tensors, rule: Tensor | None, segments: Segments, dtype: torch.dtype) -> Map:
    """The map of `tensors`, bias and all; `rule` is the one that LPHM maps share. Folded in float32, then cast.

    Training maps are built or folded here, in every pass. A server has done that when it loaded the adapter.
    """
    match spec:
        case DenseMap():
            return Dense(tensors, segments, dtype)
        case LowRankMap():
            return LowRank(tensors, segments, dtype)
        case PhmMap():
            built = {"weight": kronecker(tensors["rule"], tensors["weight"]), "bias": tensors["bias"]}
            return Dense(Tensors(built), segments, dtype)
        case LphmMap():
            assert rule is not None, "the spec of a bottleneck has it"
            return _lphm(Tensors(fold(tensors, rule)), spec.n, segments, dtype)
        case FoldedLphmMap():
            return _lphm(tensors, spec.n, segments, dtype)


def _lphm(tensors: Tensors, n: int, segments: Segments, dtype: torch.dtype) -> Map:
    if "bias" in tensors:
        return ContractingLphm(tensors, segments, dtype)
    return ExpandingLphm(tensors, n, segments, dtype)


def fold(tensors: Mapping[str, Tensor], rule: Tensor) -> dict[str, Tensor]:
    """The tensors of a `FoldedLphmMap` from those of the `LphmMap` and its rule [G, n, n, n]; exact but for
    rounding."""
    left, right, bias = (tensors[name] for name in ("left", "right", "bias"))
    groups, sites, layers, n, width, rank = left.shape
    after = right.shape[-1]
    if width >= after:
        wide = left.permute(0, 1, 2, 4, 3, 5).reshape(groups, sites, layers, width, n * rank)
        small = torch.einsum("giac,gslirp->gslaircp", rule, right).flatten(3, 5).flatten(-2)
        return {"left": wide, "right": small, "bias": bias}
    mixed = torch.einsum("giac,gslikr->gslakcir", rule, left).reshape(groups, sites, layers, n * width, n, n * rank)
    small = torch.cat((mixed, mixed.new_zeros(*mixed.shape[:-1], n)), -1).flatten(-2)
    blocks = right.reshape(groups, sites, layers, n * rank, after)
    return {"left": small, "right": torch.cat((blocks, bias.view(groups, sites, layers, n, after)), -2)}


def kronecker(rule: Tensor, weight: Tensor) -> Tensor:
    """sum_i rule_i (x) weight_i: [..., n, n, n], [..., n, in/n, out/n] -> [..., in, out]; the rule's index is the
    slow one (methods-quirks Q-C7)."""
    product = torch.einsum("...iac,...ikp->...akcp", rule, weight)
    return product.flatten(-2).flatten(-3, -2)


def init(spec: MapSpec, shapes: dict[str, Shape], std: float, generator: torch.Generator) -> dict[str, Tensor]:
    """The map's own tensors (not its bias) as methods.md section 3 draws them; `std` is that of a dense map."""
    gain = 2.0**0.5
    match spec:
        case DenseMap():
            return {"weight": normal(shapes["weight"], std, generator)}
        case PhmMap():
            rule = normal(shapes["rule"], 0.01, generator)
            return {"weight": xavier(shapes["weight"], gain, generator), "rule": rule}
        case LowRankMap() | LphmMap():
            return {name: xavier(shapes[name], gain, generator) for name in ("left", "right")}
