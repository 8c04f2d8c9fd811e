"""Frozen linear maps, and the one of torch that works everywhere."""

from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

LinearActivation = Literal["none", "relu", "gelu"]


class Linear(Protocol):
    """y = x W^T + b with a frozen W [out, in] and b [out], or without b (T5)."""

    @property
    def bias(self) -> Tensor:
        """The bias [out]; only for a map that has one."""

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, in] -> [tokens, out]."""

    def gelu(self, x: Tensor) -> Tensor:
        """gelu(x W^T + b), erf form."""

    def relu(self, x: Tensor) -> Tensor:
        """max(x W^T + b, 0)."""

    def weights(self) -> tuple[Tensor, Tensor | None]:
        """The plain weight and bias, for hashing."""


class LinearKernel(Protocol):
    """A way to build frozen linear maps."""

    name: str

    def __call__(self, weight: Tensor, bias: Tensor | None = None) -> Linear: ...


class _Biased:
    """The `bias` of all kernels."""

    _bias: Tensor | None

    @property
    def bias(self) -> Tensor:
        assert self._bias is not None, "T5 has no biases, and nobody asks for one"
        return self._bias


class PlainLinear(_Biased):
    """`torch.nn.functional.linear`: any device, any dtype."""

    name = "torch"

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self._bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self._bias)

    def gelu(self, x: Tensor) -> Tensor:
        return F.gelu(self(x))

    def relu(self, x: Tensor) -> Tensor:
        return F.relu(self(x))

    def weights(self) -> tuple[Tensor, Tensor | None]:
        return self.weight, self._bias


class FrozenLinear(_Biased):
    """A map of a kernel that records no gradients. Backward is one product with the frozen W and saves no input."""

    def multiply(self, x: Tensor, activation: LinearActivation) -> Tensor:
        """act(x W^T + b), without a gradient."""
        raise NotImplementedError

    def backward(self, gradient: Tensor) -> Tensor:
        """Gradient of the input, [tokens, out] -> [tokens, in]."""
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            return _Frozen.apply(x, self)  # type: ignore[no-untyped-call, no-any-return]
        return self.multiply(x, "none")

    def gelu(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            return F.gelu(self(x))
        return self.multiply(x, "gelu")

    def relu(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            return F.relu(self(x))
        return self.multiply(x, "relu")


class _Frozen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, linear: FrozenLinear) -> Tensor:
        ctx.linear = linear
        return linear.multiply(x, "none")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.linear.backward(gradient), None
