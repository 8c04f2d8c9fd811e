"""Self-attention over packed rows: the only place that ever sees a padded view.

A `Span` is a run of neighbouring rows that attend with the same kernel call; rows with prefix keys form spans of
their own, so nobody else pays for them.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.packing import Packed

KERNEL = "sdpa-padded"


class Prefix(NamedTuple):
    """Extra keys and values in front of each row of a span: [rows, heads, prefix, head size]."""

    keys: Tensor
    values: Tensor


class Span:
    """Rows `first..last` of a batch, with the gather indices of their padded view computed once for all layers."""

    def __init__(self, packed: Packed, first: int, last: int, num_heads: int) -> None:
        self.first, self.last, self.num_heads = first, last, num_heads
        self.tokens = slice(packed.starts[first], packed.starts[last])
        lengths = packed.lengths[first:last]
        self.rows, self.width = len(lengths), max(lengths)
        self.uniform = all(length == self.width for length in lengths)
        if not self.uniform:
            self._index(torch.tensor(lengths, device=packed.ids.device))

    def _index(self, lengths: Tensor) -> None:
        columns = torch.arange(self.width, device=lengths.device)
        self._real = columns < lengths[:, None]  # [rows, width]
        starts = lengths.cumsum(0) - lengths
        # A pad position reads its row's first token: finite, and masked away.
        self._gather = (starts[:, None] + columns * self._real).view(-1)
        self._scatter = self._real.view(-1).nonzero().view(-1)

    def attend(self, qkv: Tensor, prefix: Prefix | None) -> Tensor:
        """[tokens of the span, 3 * hidden] -> context [tokens of the span, hidden]."""
        hidden = qkv.shape[-1] // 3
        padded = qkv if self.uniform else qkv.index_select(0, self._gather)
        heads = padded.view(self.rows, self.width, 3, self.num_heads, hidden // self.num_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        if prefix is not None:
            key, value = torch.cat((prefix.keys, key), 2), torch.cat((prefix.values, value), 2)
        mask = self._mask(qkv, key.shape[2] - self.width)
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        flat = context.transpose(1, 2).reshape(self.rows * self.width, hidden)
        return flat if self.uniform else flat.index_select(0, self._scatter)

    def _mask(self, like: Tensor, prefix_len: int) -> Tensor | None:
        if self.uniform:
            return None
        visible = F.pad(self._real, (prefix_len, 0), value=True)
        mask = torch.zeros(visible.shape, dtype=like.dtype, device=like.device).masked_fill_(~visible, float("-inf"))
        return mask[:, None, None, :]
