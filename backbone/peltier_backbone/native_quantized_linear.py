"""Frozen linear maps in 8 bits by the native kernels."""

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.native.library import load_library
from peltier_backbone.quantization import quantize_weight
from peltier_backbone.quantized_linear import Activation, QuantizedLinear


class NativeQuantizedLinear(QuantizedLinear):
    """See `QuantizedLinear`: the same integer sums in one native call."""

    name = "int8-native"

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        library = load_library()
        assert library is not None, "`load_backbone` takes the kernel of torch where there is no library"
        own = quantize_weight(weight)
        self._bias, self._library, self._packed = bias, library, library.pack_int8(own.values, own.scales)
        # The kernel reads whole panels.
        self._padded = None if bias is None else F.pad(bias, (0, len(self._packed.scales) - len(bias)))

    def multiply(self, x: Tensor, activation: Activation) -> Tensor:
        rows = x if x.stride(-1) == 1 else x.contiguous()
        return self._library.multiply_int8(rows, self._packed, self._padded, activation)

    def rows(self, ids: Tensor) -> Tensor:
        return self._packed.rows(ids)

    def dequantize(self) -> Tensor:
        return self.rows(torch.arange(self._packed.outer))
