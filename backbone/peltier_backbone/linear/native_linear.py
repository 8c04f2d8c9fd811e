"""Frozen linear maps by the native kernels, and the choice between them and torch."""

import torch
from torch import Tensor

from peltier_backbone.linear.linear import FrozenLinear, Linear, PlainLinear
from peltier_backbone.native.choice import choose_kernels, load_library
from peltier_backbone.native.program import Activation
from peltier_backbone.native.stack import FrozenMap


class NativeLinear(FrozenLinear):
    """A native product in float32 or bfloat16. A row's result depends on that row alone, to the last bit.

    It keeps no second copy of the weight in plain layout; backward packs the transposed weight at its first use.
    """

    name = "native"

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        library = load_library()
        assert library is not None, "`choose_linear` takes the kernel of torch where there is no library"
        self.packed_by = library
        self._bias, self._library, self._weight = bias, library, library.pack(weight)
        self._summed = None if bias is None else bias.float()

    def multiply(self, x: Tensor, activation: Activation) -> Tensor:
        return self._library.multiply(x, self._weight, self._summed, activation)

    def place(self) -> FrozenMap | None:
        weight, bias = self._weight, None if self._summed is None else self._summed.data_ptr()
        return FrozenMap(None, weight.data.data_ptr(), bias, weight.inner, weight.outer)

    def transpose(self) -> Linear:
        return NativeLinear(self.weights()[0].t())

    def weights(self) -> tuple[Tensor, Tensor | None]:
        return self._weight.unpack(), self._bias


Kernel = type[PlainLinear] | type[NativeLinear]


def choose_linear(device: torch.device, dtype: torch.dtype) -> Kernel:
    """The kernel of frozen maps that computes in `dtype` on `device`; `PlainLinear` off the CPU."""
    native = device.type == "cpu" and choose_kernels(dtype).library is not None
    return NativeLinear if native else PlainLinear
