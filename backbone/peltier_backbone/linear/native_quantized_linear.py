"""Frozen linear maps in 8 bits by the native kernels."""

import torch
from torch import Tensor

from peltier_backbone.linear.linear import Linear, NativeLinear
from peltier_backbone.linear.quantization import quantize_weight
from peltier_backbone.linear.quantized_linear import QuantizedLinear
from peltier_backbone.native.choice import load_library
from peltier_backbone.native.stack import FrozenMap


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
