"""Attention for rows whose starts are only on the device."""

from collections.abc import Callable, Sequence

import torch
from peltier_backbone import varlen
from peltier_backbone.attention import Prefix
from peltier_backbone.load import Backbone
from torch import Tensor
from torch.nn import functional as F

from peltier_adapters.ops.program_tokens import place_of

# (layer, its input [tokens, hidden]) -> the prefix of each row, [rows, heads, prefix, head size].
PrefixOf = Callable[[int, Tensor], Prefix | None]


class PaddedRows:
    """Pads rows `starts[r]..starts[r + 1]` among `num_tokens` tokens to `longest` tokens each. A row may be empty; it
    then attends to a token of another row, and its result is not used."""

    def __init__(self, starts: Tensor, longest: int, num_tokens: int, num_heads: int) -> None:
        self._rows, self._longest, self._num_heads = len(starts) - 1, longest, num_heads
        columns = torch.arange(longest, dtype=torch.int32, device=starts.device)
        first, last = starts[:-1, None], starts[1:, None]
        places = first + columns
        real = places < last
        self._gather = torch.where(real, places, first).clamp(max=num_tokens - 1).view(-1)
        self._seen = real | (columns == 0)  # the softmax of an empty row would be NaN
        tokens = torch.arange(num_tokens, dtype=torch.int32, device=starts.device)
        row = place_of(starts, tokens)
        inside = (row >= 0) & (row < self._rows)
        self._inside = inside[:, None]
        row = row.clamp(0, self._rows - 1)
        self._scatter = (row * longest + tokens - starts.index_select(0, row)).masked_fill_(~inside, 0)

    def attend(self, qkv: Tensor, prefix: Prefix | None) -> Tensor:
        """[tokens, 3 * hidden] -> context [tokens, hidden]. The context of tokens outside all rows is undefined."""
        padded = qkv.index_select(0, self._gather).view(self._rows, self._longest, 3, self._num_heads, -1)
        query, key, value = padded.permute(2, 0, 3, 1, 4)
        seen = self._seen[:, None, None, :]
        if prefix is not None:
            seen = F.pad(seen, (prefix.keys.shape[2], 0), value=True)
            key, value = torch.cat((prefix.keys, key), 2), torch.cat((prefix.values, value), 2)
        context = F.scaled_dot_product_attention(query, key, value, seen).transpose(1, 2).flatten(2).flatten(0, 1)
        return context.index_select(0, self._scatter)

    def merge(self, own: Tensor, others: Tensor) -> Tensor:
        """`own` for tokens of these rows, `others` for other tokens."""
        return torch.where(self._inside, own, others)


class Attention:
    """Implements `bert.Attention`. Rows attend to themselves. Each element of `prefixed` has the starts of rows and the
    function for their prefixes; these rows also attend to their prefixes. The rows of `plain_starts` have no prefix,
    and flash attention computes them without padding if it is available."""

    def __init__(
        self, backbone: Backbone, plain_starts: Tensor, longest: int, num_tokens: int,
        prefixed: Sequence[tuple[Tensor, PrefixOf]],
    ) -> None:  # fmt: skip
        self._starts, self._longest, self._num_heads = plain_starts, longest, backbone.config.num_heads

        def padded(starts: Tensor) -> PaddedRows:
            return PaddedRows(starts, longest, num_tokens, self._num_heads)

        flash = varlen.fits(backbone.device, backbone.dtype, backbone.config.head_size)
        self._plain = None if flash else padded(plain_starts)
        self._prefixed = [(padded(starts), prefix_of) for starts, prefix_of in prefixed]

    def attend(self, layer: int, x: Tensor, qkv: Tensor) -> Tensor:
        if self._plain is None:
            context = varlen.attend(qkv, self._starts, self._longest, self._num_heads)
        else:
            context = self._plain.attend(qkv, None)
        for rows, prefix_of in self._prefixed:
            context = rows.merge(rows.attend(qkv, prefix_of(layer, x)), context)
        return context
