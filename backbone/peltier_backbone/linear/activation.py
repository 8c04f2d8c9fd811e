"""The activations of the feed-forward layers."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

# The names of `enum activation` in the kernels' `types.h`; a test compares them.
Activation = Literal["none", "relu", "swish", "gelu_new", "gelu", "tanh"]

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "swish": F.silu,
    "tanh": torch.tanh,
}


def activate(x: Tensor, activation: Activation, *, gated: bool = False) -> Tensor:
    """`x` activated; if `gated` the first half of the columns, times the second half."""
    activated, factor = x.chunk(2, -1) if gated else (x, None)
    y = _ACTIVATIONS[activation](activated)
    return y if factor is None else y * factor
