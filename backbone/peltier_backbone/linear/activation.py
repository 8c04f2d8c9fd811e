"""The activations of the feed-forward layers."""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.native.program import Activation

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "swish": F.silu,
}


def activate(x: Tensor, activation: Activation, *, gated: bool = False) -> Tensor:
    """`x` activated; if `gated` the first half of the columns, times the second half."""
    activated, factor = x.chunk(2, -1) if gated else (x, None)
    y = _ACTIVATIONS[activation](activated)
    return y if factor is None else y * factor
