"""Frozen linear maps, and the one of torch that works everywhere."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.linear.activation import activate
from peltier_backbone.native.program import Activation
from peltier_backbone.native.stack import FrozenMap


class Linear(Protocol):
    """y = x W^T + b with a frozen W [out, in] and b [out], or without b (T5). `packed_by` is the native library that
    packed W, None for other kernels."""

    packed_by: object

    @property
    def bias(self) -> Tensor:
        """The bias [out]; only for a map that has one."""

    def __call__(self, x: Tensor, activation: Activation = "none", *, gated: bool = False) -> Tensor:
        """act(x W^T + b), [tokens, in] -> [tokens, out]. If `gated`, the second half of the columns multiplies the
        activated first half, [tokens, out / 2]."""

    def feed_forward(self, x: Tensor, contract: "Linear", activation: Activation, *, gated: bool = False) -> Tensor:
        """`contract` of this map's activated result, [tokens, in] -> [tokens, contract's out]."""

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
    def __call__(self, x: Tensor, activation: Activation = "none", *, gated: bool = False) -> Tensor:
        """See `Linear`."""

    def feed_forward(self, x: Tensor, contract: Linear, activation: Activation, *, gated: bool = False) -> Tensor:
        return contract(self(x, activation, gated=gated))

    def place(self) -> FrozenMap | None:
        return None


class PlainLinear(Map):
    """`torch.nn.functional.linear`: any device, any dtype."""

    name = "torch"

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self._bias = weight, bias

    def __call__(self, x: Tensor, activation: Activation = "none", *, gated: bool = False) -> Tensor:
        y = F.linear(x, self.weight, self._bias)
        return y if activation == "none" else activate(y, activation, gated=gated)

    def weights(self) -> tuple[Tensor, Tensor | None]:
        return self.weight, self._bias


class FrozenLinear(Map):
    """A map of a kernel that records no gradients. Backward is one product with the frozen W and saves no input."""

    def __call__(self, x: Tensor, activation: Activation = "none", *, gated: bool = False) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            y: Tensor = _Frozen.apply(x, self)  # type: ignore[no-untyped-call]
        elif not gated:
            return self.multiply(x, activation)
        else:
            y = self.multiply(x, "none")
        return y if activation == "none" else activate(y, activation, gated=gated)

    @abstractmethod
    def multiply(self, x: Tensor, activation: Activation) -> Tensor:
        """act(x W^T + b), without a gradient."""

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
        return linear.multiply(x, "none")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.linear.transposed(gradient.contiguous()), None
