"""Products one after the other, in one call."""

from collections.abc import Sequence
from ctypes import Structure, addressof, c_int64, c_void_p
from dataclasses import dataclass, replace

from torch import Tensor

from peltier_backbone.native.library import ACTIVATIONS, Activation, Library, Runs, side_by_side, vectors


@dataclass(frozen=True)
class Product:
    """act(x W + b), `weight` [groups, layers, in, out] and `bias` [groups, layers, out] in float32; a row of x counts
    as `fold` rows [in]."""

    weight: Tensor
    bias: Tensor | None = None
    fold: int = 1
    activation: Activation = "none"


class _Step(Structure):
    """`step` in chains.c."""

    _fields_ = (
        ("weight", c_void_p), ("bias", c_void_p),
        *((name, c_int64) for name in (
            "weight_stride", "weight_group", "weight_layer", "bias_group", "bias_layer", "fold", "inner", "outer",
            "activation",
        )),
    )  # fmt: skip


class Chain:
    """`products` of all layers, of which each row of neighbouring `runs` meets those of its own group."""

    def __init__(self, library: Library, products: Sequence[Product], runs: Runs) -> None:
        self._library, self._runs, self.count = library, runs, len(products)
        # Whose memory the steps name.
        self._kept = [replace(product, weight=side_by_side(product.weight)) for product in products]
        self._folded = any(product.fold > 1 for product in products)
        self._steps = (_Step * self.count)(*map(_step, self._kept))
        self.address = addressof(self._steps)

    def add(self, y: Tensor, x: Tensor, layer: int, scale: Tensor | None = None) -> None:
        """y [rows, out] += products(x [rows, in]) * scale [rows, 1], in place; y may be x. Where rows are folded, y and
        x lie side by side."""
        assert not self._folded or (x.is_contiguous() and y.is_contiguous()), "folded rows lie side by side"
        self._library.chain(y, x, self, layer, self._runs, scale)


def _step(product: Product) -> _Step:
    weight, bias = product.weight, product.bias
    group, layer, row, _ = weight.stride()
    data, bias_group = vectors(bias)
    bias_layer = 0 if bias is None else bias.stride(1)
    sizes = product.fold, weight.shape[-2], weight.shape[-1]
    return _Step(
        weight.data_ptr(), data, row, group, layer, bias_group, bias_layer, *sizes, ACTIVATIONS[product.activation]
    )
