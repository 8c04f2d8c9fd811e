"""The activations of `parts/bottleneck.py`, inside a kernel."""

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), without overflow for any x."""
    small = tl.exp(-tl.abs(x))
    return tl.where(x < 0, small, 1.0) / (1.0 + small)


@triton.jit
def activate(x, name: tl.constexpr):
    """`name` of x in float32: relu, gelu (erf), gelu_new (tanh) or swish."""
    if name == "relu":
        return tl.maximum(x, 0.0)
    elif name == "gelu":
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif name == "gelu_new":
        # (1 + tanh(z)) / 2 is the sigmoid of 2 z; Triton's own language has no tanh.
        return x * sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    else:
        tl.static_assert(name == "swish")
        return x * sigmoid(x)
