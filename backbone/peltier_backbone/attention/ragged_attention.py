"""T5's attention of packed rows: each row of queries attends to its own row of keys. On the CPU rows attend one by one
if padding would cost more time than separate calls; otherwise, and in training, they are padded.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from peltier_backbone.attention.padding import Padding
from peltier_backbone.attention.relative import RowBias
from peltier_backbone.attention.view import Attended, attend

# This many padded logits (query, key) in a row take as long as a separate attention call for the row on the CPU.
_MAX_WASTED_LOGITS = 600


class RaggedAttention:
    """Attention of rows of `lengths` queries to rows of `key_lengths` keys. All layers share what depends only on these
    lengths. `biases` are those of consecutive tokens, or one tensor for each row, [heads, at least queries, at least
    keys], or None for no bias; `like` has the device and dtype of the queries and keys.
    """

    def __init__(
        self, num_heads: int, lengths: Sequence[int], key_lengths: Sequence[int], like: Tensor,
        biases: RowBias | Sequence[Tensor] | None = None,
    ) -> None:  # fmt: skip
        self._num_heads, self._lengths, self._key_lengths = num_heads, list(lengths), list(key_lengths)
        self._biases, self._dtype = biases, like.dtype
        self._padded_biases: dict[int, Tensor | None] = {}
        self._queries, self._keys = Padding(lengths, like.device), Padding(key_lengths, like.device)
        pairs = sum(queries * keys for queries, keys in zip(lengths, key_lengths, strict=True))
        waste = self._queries.rows * self._queries.width * self._keys.width - pairs
        self._pads = like.device.type != "cpu" or waste <= _MAX_WASTED_LOGITS * self._queries.rows

    def attend(
        self, query: Tensor, key_value: Tensor, *, with_logsumexp: bool = False, first_head: int = 0
    ) -> Attended:
        """[queries, size] and [keys, 2 * size] -> context [queries, size], and on request the logsumexp [queries,
        heads]. Biases are those of the heads from `first_head` on."""
        if self._pads or query.requires_grad or key_value.requires_grad:
            return self._padded(query, key_value, with_logsumexp, first_head)
        return self._by_row(query, key_value, with_logsumexp, first_head)

    def _by_row(self, query: Tensor, key_value: Tensor, with_logsumexp: bool, first_head: int) -> Attended:
        queries = query.view(len(query), self._num_heads, -1).transpose(0, 1)  # [heads, tokens, head size]
        keys, values = key_value.view(len(key_value), 2, self._num_heads, -1).permute(1, 2, 0, 3)
        pieces = zip(
            torch.split(queries, self._lengths, 1),
            torch.split(keys, self._key_lengths, 1),
            torch.split(values, self._key_lengths, 1),
            strict=True,
        )
        biases = [self._bias(row, first_head) for row in range(len(self._lengths))]
        rows = [attend(*piece, bias, with_logsumexp=with_logsumexp) for piece, bias in zip(pieces, biases, strict=True)]
        context = torch.cat([row.context for row in rows], 1).transpose(0, 1).flatten(1)
        logsumexps = [row.logsumexp for row in rows if row.logsumexp is not None]
        return Attended(context, torch.cat(logsumexps, 1).t() if with_logsumexp else None)

    def _bias(self, row: int, first_head: int) -> Tensor | None:
        if self._biases is None:
            return None
        bias = self._biases.square if isinstance(self._biases, RowBias) else self._biases[row]
        return bias[self._heads(first_head), : self._lengths[row], : self._key_lengths[row]]

    def _heads(self, first: int) -> slice:
        return slice(first, first + self._num_heads)

    def _padded(self, query: Tensor, key_value: Tensor, with_logsumexp: bool, first_head: int) -> Attended:
        padded, padded_keys = self._queries.pad(query), self._keys.pad(key_value)
        queries = padded.view(*padded.shape[:2], self._num_heads, -1).transpose(1, 2)
        keys, values = padded_keys.view(*padded_keys.shape[:2], 2, self._num_heads, -1).permute(2, 0, 3, 1, 4)
        bias = self._padded_bias(first_head)
        context, logsumexps = attend(queries, keys, values, bias, with_logsumexp=with_logsumexp)
        unpad = self._queries.unpad
        return Attended(
            unpad(context.transpose(1, 2).flatten(2)), None if logsumexps is None else unpad(logsumexps.transpose(1, 2))
        )

    def _padded_bias(self, first_head: int) -> Tensor | None:
        """The bias and mask of padded logits, broadcast to [rows, heads, queries, keys]; built once for layers of the
        same heads."""
        if first_head not in self._padded_biases:
            mask = None if self._keys.uniform else self._keys.mask(self._dtype)[:, None, None, :]
            bias = self._pad_biases(first_head)
            self._padded_biases = {first_head: mask if bias is None else bias if mask is None else bias + mask}
        return self._padded_biases[first_head]

    def _pad_biases(self, first_head: int) -> Tensor | None:
        if self._biases is None:
            return None
        queries, keys, heads = self._queries.width, self._keys.width, self._heads(first_head)
        shared = self._biases.square if isinstance(self._biases, RowBias) else self._biases[0]
        if isinstance(self._biases, RowBias) or all(bias is shared for bias in self._biases):
            return shared[heads, :queries, :keys]
        bias = shared.new_zeros(self._queries.rows, self._num_heads, queries, keys)
        for row, (num_queries, num_keys) in enumerate(zip(self._lengths, self._key_lengths, strict=True)):
            bias[row, :, :num_queries, :num_keys] = self._biases[row][heads]
        return bias
