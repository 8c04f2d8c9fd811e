"""Frozen linear maps behind one small kernel interface; the kernel is chosen once at start-up.

`PackedLinear` keeps the weight in oneDNN's blocked layout and fuses GELU and ReLU. The operators are private to torch,
so they stay in this file, with `PlainLinear` as the fallback that works everywhere.
"""

import time
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

_ROUNDS = 7


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
    """The `bias` of both kernels."""

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


class PackedLinear(_Biased):
    """oneDNN with a prepacked weight (CPU). It keeps no second copy of the weight in plain layout.

    The weight is frozen, so backward is one product with W, which is prepacked at its first use. It saves no input.
    """

    name = "onednn-prepacked"

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._bias = bias
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
        self._transposed: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            return _Frozen.apply(x, self)  # type: ignore[no-untyped-call, no-any-return]
        return _onednn(x, self._packed, self._bias)

    def gelu(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            return F.gelu(self(x))
        return _onednn(x, self._packed, self._bias, "gelu")

    def relu(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            return F.relu(self(x))
        return _onednn(x, self._packed, self._bias, "relu")

    def backward(self, gradient: Tensor) -> Tensor:
        """Gradient of the input, [tokens, out] -> [tokens, in]."""
        if self._transposed is None:
            self._transposed = torch.ops.mkldnn._reorder_linear_weight(self.weights()[0].t().contiguous())
        return _onednn(gradient.contiguous(), self._transposed, None)

    def weights(self) -> tuple[Tensor, Tensor | None]:
        return self._packed.to_dense(), self._bias


def _onednn(x: Tensor, packed: Tensor, bias: Tensor | None, activation: str = "none") -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, activation, [], "none")
    return y


class _Frozen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, linear: PackedLinear) -> Tensor:
        ctx.linear = linear
        return _onednn(x, linear._packed, linear._bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.linear.backward(gradient), None


def choose_linear(device: torch.device, dtype: torch.dtype) -> type[PlainLinear] | type[PackedLinear]:
    """The faster kernel on this machine for `dtype`, by a trial of some milliseconds; `PlainLinear` off the CPU."""
    if device.type != "cpu":
        return PlainLinear
    seconds = _try(dtype)
    return min(seconds, key=seconds.__getitem__)


def slowdown(dtype: torch.dtype) -> float:
    """How many times as long products take in `dtype` as in float32 on this CPU, each by its faster kernel."""
    return min(_try(dtype).values()) / min(_try(torch.float32).values())


def _try(dtype: torch.dtype) -> dict[type[PlainLinear] | type[PackedLinear], float]:
    """The seconds of each kernel that works on this machine."""
    weight, x = _example(dtype)
    plain = PlainLinear(weight, weight[:, 0])
    made: dict[type[PlainLinear] | type[PackedLinear], Linear] = {PlainLinear: plain}
    try:
        made[PackedLinear] = packed = PackedLinear(weight, weight[:, 0])
        _check(packed, plain, x)
    except (RuntimeError, AttributeError, NotImplementedError):  # this torch or this CPU has no such operator
        made.pop(PackedLinear, None)
    # The kernels take turns and are timed in CPU time, so that other load on the machine does not decide the result.
    rounds = [[_seconds(linear, x) for linear in made.values()] for _ in range(_ROUNDS)]
    return dict(zip(made, map(min, *rounds), strict=True))


def _example(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A weight and an input of medium size."""
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(1024, 512, generator=generator), torch.randn(256, 512, generator=generator)
    return weight.to(dtype), x.to(dtype)


@torch.inference_mode()
def _check(packed: PackedLinear, plain: PlainLinear, x: Tensor) -> None:
    expected = plain(x)
    if (packed(x) - expected).abs().max() > 0.05 * expected.abs().max():
        raise RuntimeError(f"kernel {packed.name} gives wrong products on this machine")


@torch.inference_mode()
def _seconds(linear: Linear, x: Tensor) -> float:
    """The seconds of the two products that an encoder uses: a plain one and one with GELU."""
    start = time.process_time()
    linear(x)
    linear.gelu(x)
    return time.process_time() - start
