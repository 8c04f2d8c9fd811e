"""Self-attention over packed rows. On the CPU rows attend one by one and no pad exists; elsewhere and in training this
is the only place that ever sees a padded view.

A `Span` is a run of neighbouring rows that share a kernel call where there is one; rows with prefix keys form spans of
their own, so nobody else pays for them.
"""

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.packing import Packed

# Below this many tokens one call for rows of equal length beats a call a row on the CPU.
_SHORT = 32


def kernel_name(device: torch.device) -> str:
    """What `/info` shows."""
    return "sdpa-by-row" if device.type == "cpu" else "sdpa-padded"


class Prefix(NamedTuple):
    """Extra keys and values in front of each row of a span: [rows, heads, prefix, head size]."""

    keys: Tensor
    values: Tensor


class Span:
    """Rows `first..last` of a batch; what depends on the lengths alone is computed once for all layers."""

    def __init__(self, packed: Packed, first: int, last: int, num_heads: int) -> None:
        self.tokens = slice(packed.starts[first], packed.starts[last])
        self._lengths, self._num_heads = packed.lengths[first:last], num_heads
        self._rows, self._width = len(self._lengths), max(self._lengths)
        self._uniform = all(length == self._width for length in self._lengths)
        self._device = packed.ids.device

    def attend(self, qkv: Tensor, prefix: Prefix | None) -> Tensor:
        """[tokens of the span, 3 * hidden] -> context [tokens of the span, hidden]."""
        if qkv.requires_grad:
            return self._padded(qkv, prefix)
        if qkv.device.type == "cpu" and not (self._uniform and self._width < _SHORT):
            return self._by_row(qkv, prefix)
        return self._padded(qkv, prefix)

    def _by_row(self, qkv: Tensor, prefix: Prefix | None) -> Tensor:
        heads = qkv.view(len(qkv), 3, self._num_heads, -1).permute(1, 2, 0, 3)  # [3, heads, tokens, head size]
        context = []
        start = 0
        for row, length in enumerate(self._lengths):
            query, key, value = heads[:, None, :, start : start + length].unbind()
            if prefix is not None:
                key = torch.cat((prefix.keys[row, None], key), 2)
                value = torch.cat((prefix.values[row, None], value), 2)
            attended = F.scaled_dot_product_attention(query, key, value)
            context.append(attended[0].transpose(0, 1).reshape(length, -1))
            start += length
        return torch.cat(context)

    def _padded(self, qkv: Tensor, prefix: Prefix | None) -> Tensor:
        padded = qkv if self._uniform else qkv.index_select(0, self._gather)
        heads = padded.view(self._rows, self._width, 3, self._num_heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        if prefix is not None:
            key, value = torch.cat((prefix.keys, key), 2), torch.cat((prefix.values, value), 2)
        mask = self._mask(qkv, key.shape[2] - self._width)
        attend = _differentiable if qkv.requires_grad else F.scaled_dot_product_attention
        context = attend(query, key, value, mask)
        flat = context.transpose(1, 2).reshape(self._rows * self._width, -1)
        return flat if self._uniform else flat.index_select(0, self._scatter)

    @cached_property
    def _real(self) -> Tensor:
        """Which places of the padded view hold a token, [rows, width]."""
        return torch.arange(self._width) < torch.tensor(self._lengths)[:, None]

    @cached_property
    def _gather(self) -> Tensor:
        """The token at each place; a pad place reads its row's first token: finite, and masked away."""
        lengths = torch.tensor(self._lengths)
        starts = lengths.cumsum(0) - lengths
        return (starts[:, None] + torch.arange(self._width) * self._real).view(-1).to(self._device)

    @cached_property
    def _scatter(self) -> Tensor:
        """The place of each token."""
        return self._real.view(-1).nonzero().view(-1).to(self._device)

    def _mask(self, like: Tensor, prefix_len: int) -> Tensor | None:
        if self._uniform:
            return None
        visible = F.pad(self._real, (prefix_len, 0), value=True).to(like.device)
        mask = torch.zeros(visible.shape, dtype=like.dtype, device=like.device).masked_fill_(~visible, float("-inf"))
        return mask[:, None, None, :]


def _differentiable(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """The plain products: on the CPU the fused kernel's backward is several times slower."""
    scores = torch.matmul(query * query.shape[-1] ** -0.5, key.transpose(-1, -2))
    return torch.matmul((scores if mask is None else scores + mask).softmax(-1), value)
