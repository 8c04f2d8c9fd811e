"""The activations of `parts/bottleneck.py`, inside a kernel."""

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), without overflow for any x."""
    small = tl.exp(-tl.abs(x))
    return tl.where(x < 0, small, 1.0) / (1.0 + small)


@triton.jit
def activate(x, number):
    """Activation `number` (`peltier_backbone.native.program.ACTIVATIONS`) of x in float32: 0 none, 1 relu, 2 swish, 3
    gelu_new (tanh), 4 gelu (erf), 5 tanh."""
    if number == 1:
        x = tl.maximum(x, 0.0)
    elif number == 2:
        x = x * sigmoid(x)
    elif number == 3:
        # (1 + tanh(z)) / 2 is the sigmoid of 2 z; Triton's own language has no tanh.
        x = x * sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    elif number == 4:
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif number == 5:
        x = 2.0 * sigmoid(2.0 * x) - 1.0
    return x
