"""Frozen linear maps in 8 bits, in torch and by the native kernels: exact integer sums of a token's values and a
channel's, then float32."""

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.linear.linear import FrozenLinear, Linear, NativeLinear, PlainLinear
from peltier_backbone.linear.quantization import QuantizedRows, quantize_rows, quantize_weight
from peltier_backbone.native.choice import load_library
from peltier_backbone.native.stack import FrozenMap

# A sum of so many products of 8 bits is exact in float32, in any order.
_EXACT_INNER = 512


class QuantizedLinear(FrozenLinear):
    """y = x W^T + b with W in int8, one scale for each output channel, and x quantised for each token; in torch.

    Sums are exact, so a token's result never depends on the tokens beside it. Backward is one product with the W that
    the stored values stand for, as if the rounding of x were not there (straight-through).
    """

    name = "int8-torch"
    coarse = True

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight, self._bias = quantize_weight(weight), bias
        self._sums = self._weight.values.sum(1, dtype=torch.int32)

    def multiply(self, x: Tensor) -> Tensor:
        """x W^T + b, without a gradient."""
        rows = quantize_rows(x)
        y = (self._sum(rows) - rows.zeros * self._sums).float() * (rows.scales * self._weight.scales)
        return y if self._bias is None else y + self._bias

    def transpose(self) -> Linear:
        return PlainLinear(self.dequantize().t())

    def weights(self) -> tuple[Tensor, Tensor | None]:
        return self.dequantize(), self._bias

    def dequantize(self) -> Tensor:
        """The W that the stored values stand for, [out, in] in float32."""
        return self._weight.dequantize()

    def rows(self, ids: Tensor) -> Tensor:
        """The rows `ids` of W, [*ids, in] in float32."""
        return self._weight.rows(ids)

    def _sum(self, rows: QuantizedRows) -> Tensor:
        """The sums of products, [tokens, out] in int32."""
        pieces = zip(*(torch.split(one, _EXACT_INNER, 1) for one in (rows.values, self._weight.values)), strict=True)
        sums = [F.linear(values.float(), weight.float()).int() for values, weight in pieces]
        return sum(sums[1:], sums[0])


class NativeQuantizedLinear(QuantizedLinear):
    """See `QuantizedLinear`: the same integer sums in one native call."""

    name = "int8-native"

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        library = load_library()
        assert library is not None, "`load_backbone` takes the kernel of torch where there is no library"
        self.packed_by = library
        own = quantize_weight(weight)
        self._bias, self._library, self._packed = bias, library, library.pack_int8(own.values, own.scales, bias)

    def multiply(self, x: Tensor) -> Tensor:
        return self._library.multiply_int8(x, self._packed)

    def place(self) -> FrozenMap | None:
        return FrozenMap(self._packed.address, None, None, self._packed.inner, self._packed.outer)

    def transpose(self) -> Linear:
        return NativeLinear(self.dequantize().t())

    def rows(self, ids: Tensor) -> Tensor:
        return self._library.rows_int8(self._packed, ids)

    def dequantize(self) -> Tensor:
        return self.rows(torch.arange(self._packed.outer))
