"""Frozen linear maps: of torch, which work everywhere, and of the native kernels; and the choice between them."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.native.choice import choose_kernels, load_library
from peltier_backbone.native.stack import FrozenMap


class Linear(Protocol):
    """y = x W^T + b with a frozen W [out, in] and b [out], or without b (T5). `packed_by` is the native library that
    packed W, None for other kernels."""

    packed_by: object

    @property
    def bias(self) -> Tensor:
        """The bias [out]; only for a map that has one."""

    def __call__(self, x: Tensor) -> Tensor:
        """x W^T + b, [tokens, in] -> [tokens, out]."""

    def place(self) -> FrozenMap | None:
        """Where the native kernels read the map; None for a map of other kernels."""

    def weights(self) -> tuple[Tensor, Tensor | None]:
        """The plain weight and bias, for hashing."""


class LinearKernel(Protocol):
    """A way to build frozen linear maps. `coarse`: their results are rounded more than bfloat16 rounds."""

    name: str
    coarse: bool

    def __call__(self, weight: Tensor, bias: Tensor | None = None) -> Linear: ...


class Map(ABC):
    """What all kernels share."""

    coarse = False
    packed_by: object = None
    _bias: Tensor | None

    @property
    def bias(self) -> Tensor:
        assert self._bias is not None, "T5 has no biases, and nobody asks for one"
        return self._bias

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """See `Linear`."""

    def place(self) -> FrozenMap | None:
        return None


class PlainLinear(Map):
    """`torch.nn.functional.linear`: any device, any dtype."""

    name = "torch"

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self._bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self._bias)

    def weights(self) -> tuple[Tensor, Tensor | None]:
        return self.weight, self._bias


class FrozenLinear(Map):
    """A map of a kernel that records no gradients. Backward is one product with the frozen W and saves no input."""

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            y: Tensor = _Frozen.apply(x, self)  # type: ignore[no-untyped-call]
            return y
        return self.multiply(x)

    @abstractmethod
    def multiply(self, x: Tensor) -> Tensor:
        """x W^T + b, without a gradient."""

    @abstractmethod
    def transpose(self) -> Linear:
        """The map x W, without a bias."""

    @cached_property
    def transposed(self) -> Linear:
        """The same, made at its first use."""
        return self.transpose()


class _Frozen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, linear: FrozenLinear) -> Tensor:
        ctx.linear = linear
        return linear.multiply(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.linear.transposed(gradient.contiguous()), None


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

    def multiply(self, x: Tensor) -> Tensor:
        return self._library.multiply(x, self._weight, self._summed)

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


class SharedHeads(Map):
    """The map [3 * heads * size, in] whose keys and values are the same for `heads` / `key_heads` neighbours. `own` is
    the same map with each of them once, [(heads + 2 * key_heads) * size, in], and computes the product."""

    def __init__(self, own: Linear, heads: int, key_heads: int) -> None:
        self._own, self._heads, self._key_heads, self._bias = own, heads, key_heads, None
        self.packed_by = own.packed_by

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, in] -> [tokens, 3 * heads * size]."""
        return self._repeat(self._own(x))

    def place(self) -> FrozenMap | None:
        """That of `own`; the kernels repeat the keys and values of its result."""
        return self._own.place()

    def weights(self) -> tuple[Tensor, Tensor | None]:
        return self._repeat(self._own.weights()[0].t()).t(), None

    def _repeat(self, y: Tensor) -> Tensor:
        num, group = self._key_heads, self._heads // self._key_heads
        size = y.shape[1] // (self._heads + 2 * num)
        query, *shared = torch.split(y.reshape(-1, self._heads + 2 * num, size), [self._heads, num, num], 1)
        own = (x.unsqueeze(2).expand(-1, -1, group, -1) for x in shared)
        return torch.cat((query.reshape(-1, num, group, size), *own), 1).flatten(1)
