"""Frozen linear maps by the native kernels."""

from functools import cached_property

from torch import Tensor

from peltier_backbone.linear import FrozenLinear
from peltier_backbone.native.library import load_library
from peltier_backbone.native.program import Activation


class NativeLinear(FrozenLinear):
    """A native product in float32 or bfloat16. A row's result depends on that row alone, to the last bit.

    It keeps no second copy of the weight in plain layout; backward packs the transposed weight at its first use.
    """

    name = "native"

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        library = load_library()
        assert library is not None, "`choose_linear` takes the kernel of torch where there is no library"
        self._bias, self._library, self._weight = bias, library, library.pack(weight)
        self._summed = None if bias is None else bias.float()

    def multiply(self, x: Tensor, activation: Activation) -> Tensor:
        rows = x if x.stride(-1) == 1 else x.contiguous()
        return self._library.multiply(rows, self._weight, self._summed, activation)

    def backward(self, gradient: Tensor) -> Tensor:
        return self._transposed.multiply(gradient.contiguous(), "none")

    def weights(self) -> tuple[Tensor, Tensor | None]:
        return self._weight.unpack(), self._bias

    @cached_property
    def _transposed(self) -> "NativeLinear":
        return NativeLinear(self.weights()[0].t())
