"""The convolution of large DeBERTa-v2 checkpoints, which their authors' code and transformers compute beside the first
layer."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from peltier_backbone.linear.activation import Activation, activate
from peltier_backbone.linear.linear import Linear
from peltier_backbone.linear.norm import LayerNorm
from peltier_backbone.text.packing import Packed

# The states after consecutive layers of the states before them, both [tokens, hidden].
RunLayers = Callable[[Tensor, range], Tensor]


@dataclass(frozen=True)
class Convolution:
    """A map [hidden, size * hidden] of the states before the first layer, of `size` neighbouring tokens in the order of
    the text with a token in their middle; its activation; and the norm of the sum with the first layer's states. Rows
    have zeros beyond their ends and at pads."""

    map: Linear
    size: int
    activation: Activation
    norm: LayerNorm

    def __call__(self, x: Tensor, y: Tensor, packed: Packed) -> Tensor:
        """The states before the second layer of those before the first, x, and after it, y, all [tokens, hidden]."""
        near = torch.cat((x, x.new_zeros(1, x.shape[1])))[self._neighbours(packed, x.device)]
        states = self.norm(activate(self.map(near.flatten(1)), self.activation), y)
        if packed.seen == packed.lengths:
            return states
        return states.masked_fill(_pads(packed, x.device)[:, None], 0)

    def run_around(self, run: RunLayers, x: Tensor, packed: Packed, layers: range) -> Tensor:
        """The states after consecutive `layers`, which `run` computes, and the convolution after the first one."""
        if 0 not in layers:
            return run(x, layers)
        y = self(x, run(x, range(1)), packed)
        return run(y, range(1, layers.stop)) if layers.stop > 1 else y

    def _neighbours(self, packed: Packed, device: torch.device) -> Tensor:
        """The numbers of each token's neighbours, [tokens, size]; those beyond a row are the number of tokens."""
        lengths = torch.tensor(packed.lengths, device=device)
        starts = torch.tensor(packed.starts[:-1], device=device).repeat_interleave(lengths)
        ends = starts + torch.tensor(packed.seen, device=device).repeat_interleave(lengths)
        tokens = torch.arange(len(starts), device=device)[:, None] + torch.arange(self.size, device=device)
        tokens = tokens - self.size // 2
        inside = (tokens >= starts[:, None]) & (tokens < ends[:, None])
        return torch.where(inside, tokens, len(starts))


def _pads(packed: Packed, device: torch.device) -> Tensor:
    """Whether each token is a pad, [tokens]."""
    lengths = zip(packed.lengths, packed.seen, strict=True)
    return torch.tensor([place >= seen for length, seen in lengths for place in range(length)], device=device)
