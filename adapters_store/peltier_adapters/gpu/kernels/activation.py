"""The activations of bottlenecks, inside a kernel, and those of gated feed-forward layers, in one launch."""

import triton
import triton.language as tl
from peltier_backbone.linear.activation import Activation
from peltier_backbone.native.program import ACTIVATIONS
from torch import Tensor

from peltier_adapters.gpu.kernels.rows import strides
from peltier_adapters.gpu.kernels.tile import read

_BLOCK, _TILE = 16, 128
_RELU, _SWISH = tl.constexpr(ACTIVATIONS["relu"]), tl.constexpr(ACTIVATIONS["swish"])
_GELU_NEW, _GELU = tl.constexpr(ACTIVATIONS["gelu_new"]), tl.constexpr(ACTIVATIONS["gelu"])
_TANH = tl.constexpr(ACTIVATIONS["tanh"])


def gate(x: Tensor, activation: Activation) -> Tensor:
    """The first half of the columns of x activated, times the second half, [tokens, 2 * width] -> [tokens, width]."""
    y = x.new_empty(len(x), x.shape[1] // 2)
    _kernel[(triton.cdiv(len(x), _BLOCK), triton.cdiv(y.shape[1], _TILE))](
        y, x, *strides(y, x), *y.shape, number=ACTIVATIONS[activation], block=_BLOCK, tile=_TILE
    )
    return y


@triton.jit(do_not_specialize=["tokens"])
def _kernel(
    y, x, y_stride, x_stride, tokens, width, number: tl.constexpr, block: tl.constexpr, tile: tl.constexpr
):  # fmt: skip
    dtype = x.dtype.element_ty
    rows, columns = tl.program_id(0) * block + tl.arange(0, block), tl.program_id(1) * tile + tl.arange(0, tile)
    left = read(x, rows, columns, x_stride, tokens, width, dtype).to(tl.float32)
    right = read(x + width, rows, columns, x_stride, tokens, width, dtype).to(tl.float32)
    value = activate(left, number).to(dtype).to(tl.float32) * right  # as torch, which rounds twice
    inside = (rows[:, None] < tokens) & (columns[None, :] < width)
    tl.store(y + rows[:, None] * y_stride + columns[None, :], value.to(dtype), mask=inside)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), without overflow for any x."""
    small = tl.exp(-tl.abs(x))
    return tl.where(x < 0, small, 1.0) / (1.0 + small)


@triton.jit
def activate(x, number):
    """Activation `number` (`enum activation` in types.h) of x in float32."""
    if number == _RELU:
        x = tl.maximum(x, 0.0)
    elif number == _SWISH:
        x = x * sigmoid(x)
    elif number == _GELU_NEW:
        # (1 + tanh(z)) / 2 is the sigmoid of 2 z; Triton's own language has no tanh.
        x = x * sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    elif number == _GELU:
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif number == _TANH:
        x = 2.0 * sigmoid(2.0 * x) - 1.0
    return x
