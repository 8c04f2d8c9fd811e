"""The two frozen maps of a feed-forward layer and the activation between them, where no adapter acts between them."""

import torch
from torch import Tensor

from peltier_backbone.activation import activate
from peltier_backbone.linear import Linear
from peltier_backbone.native.program import Activation
from peltier_backbone.native_quantized_linear import NativeQuantizedLinear


def feed_forward(x: Tensor, expand: Linear, contract: Linear, activation: Activation, *, gated: bool = False) -> Tensor:
    """`contract` of act(`expand` of x), [tokens, hidden] both. If `gated`, the second half of the expanded columns
    multiplies the activated first half."""
    records = torch.is_grad_enabled()
    if isinstance(expand, NativeQuantizedLinear) and isinstance(contract, NativeQuantizedLinear) and not records:
        return expand.feed_forward(x, contract, activation, gated=gated)
    return contract(expand_activated(x, expand, activation, gated=gated))


def expand_activated(x: Tensor, expand: Linear, activation: Activation, *, gated: bool = False) -> Tensor:
    """act(`expand` of x), [tokens, inner], by the map's own fused activation if it has one."""
    if activation == "gelu" and not gated:
        return expand.gelu(x)
    if activation == "relu" and not gated:
        return expand.relu(x)
    return activate(expand(x), activation, gated=gated)
