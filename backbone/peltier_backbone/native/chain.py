"""Products one after the other, in one call."""

from collections.abc import Sequence
from ctypes import Structure, addressof, c_double, c_int64, c_void_p
from dataclasses import dataclass

import torch
from torch import Tensor

from peltier_backbone.native.library import ACTIVATIONS, Activation, Library, Runs
from peltier_backbone.native.scattered import Scattered


@dataclass(frozen=True)
class Product:
    """gain act(x W + b) in float32, each group with its own `weight` [layers, in, out] and `bias` [layers, out]; a row
    of x counts as `fold` rows [in]. Only the last product of a chain may have a gain."""

    weight: Scattered
    bias: Scattered | None = None
    fold: int = 1
    activation: Activation = "none"
    gain: float = 1.0


class _Step(Structure):
    """`step` in chains.c."""

    _fields_ = (
        *((name, c_void_p) for name in ("weight", "bias", "weight_groups", "bias_groups")),
        *((name, c_int64) for name in (
            "weight_stride", "weight_layer", "bias_layer", "fold", "inner", "outer", "activation",
        )),
        ("gain", c_double),
    )  # fmt: skip


class Chain:
    """`products` of all layers, of which each row of neighbouring `runs` meets those of its own group."""

    def __init__(self, library: Library, products: Sequence[Product], runs: Runs) -> None:
        assert all(product.gain == 1 for product in products[:-1]), "only what is added is scaled"
        self._library, self._runs, self.count = library, runs, len(products)
        self._products = tuple(products)  # whose memory the steps name
        self._folded = any(product.fold > 1 for product in products)
        self._steps = (_Step * self.count)(*map(_step, products))
        self.address = addressof(self._steps)

    def add(self, y: Tensor, x: Tensor, layer: int, scale: Tensor | None = None) -> None:
        """y [rows, out] += products(x [rows, in]) * scale [rows, 1], in place; y may be x. Where rows are folded, y and
        x lie side by side."""
        assert not self._folded or (x.is_contiguous() and y.is_contiguous()), "folded rows lie side by side"
        self._library.chain(y, x, self, layer, self._runs, scale)


def _step(product: Product) -> _Step:
    weight, bias = product.weight, product.bias
    layer, row, column = weight.first.stride()
    assert column == 1 or weight.first.shape[-1] == 1, "what a row of a weight holds lies side by side"
    assert all(one is None or one.first.dtype == torch.float32 for one in (weight, bias)), "kernels read float32"
    data, bias_layer, bias_groups = (None, 0, None)
    if bias is not None:
        data, bias_layer, bias_groups = bias.first.data_ptr(), bias.first.stride(0), bias.offsets.address
    return _Step(
        weight.first.data_ptr(), data, weight.offsets.address, bias_groups, row, layer, bias_layer, product.fold,
        *weight.first.shape[-2:], ACTIVATIONS[product.activation], product.gain,
    )  # fmt: skip
