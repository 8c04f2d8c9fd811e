"""What tokens attend to: their own rows, in a decoder an encoder's rows, and the prefixes of their adapters.

T5's attention is plain products. Unlike the fused kernels, these are fast with a bias on the CPU and give the
logsumexp, by which `PrefixAttention` merges the prefixes of spans of rows into the result.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from peltier_backbone.attention.adaptation import Adaptation, Prefix


class Attended(NamedTuple):
    """`context` [..., queries, head size], and if requested the `logsumexp` of all logits [..., queries] in float32."""

    context: Tensor
    logsumexp: Tensor | None


def attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, *, with_logsumexp: bool) -> Attended:
    """softmax(query keys^T + bias) values, without scaling, as in T5; `bias` is broadcast to [..., queries, keys]."""
    transposed = keys.transpose(-1, -2)
    if bias is not None and query.dim() == 3:
        logits = torch.baddbmm(bias, query, transposed)
    else:
        logits = torch.matmul(query, transposed)
        logits = logits if bias is None else logits.add_(bias)
    weights = logits.softmax(-1, dtype=torch.float32).to(values.dtype)
    return Attended(torch.matmul(weights, values), logits.float().logsumexp(-1) if with_logsumexp else None)


class PrefixAttention:
    """The prefixes of `adaptation` for rows of `lengths` tokens; rows without a prefix take no extra time."""

    def __init__(self, adaptation: Adaptation, lengths: Sequence[int], num_heads: int) -> None:
        self._adaptation, self._num_heads = adaptation, num_heads
        starts = list(accumulate(lengths, initial=0))
        spans = adaptation.spans(len(lengths))
        self._lengths = [list(lengths[first:last]) for first, last in spans]
        self._tokens = [slice(starts[first], starts[last]) for first, last in spans]

    def find(self, attention: int, x: Tensor) -> list[Prefix | None] | None:
        """The prefix of each span in attention number `attention`, whose queries are computed from `x`; None if no span
        has one."""
        found = [self._adaptation.prefix(attention, span, x[tokens]) for span, tokens in enumerate(self._tokens)]
        return None if all(prefix is None for prefix in found) else found

    def merge(self, query: Tensor, attended: Attended, prefixes: list[Prefix | None] | None) -> Tensor:
        """The context of `query` with the prefixes, [tokens, size] both; `attended` is its result without them."""
        context, logsumexp = attended
        if prefixes is None:
            return context
        assert logsumexp is not None, "callers with a prefix ask for it"
        pieces = [
            context[tokens]
            if prefix is None
            else self._merge_prefix(lengths, query[tokens], Attended(context[tokens], logsumexp[tokens]), prefix)
            for lengths, tokens, prefix in zip(self._lengths, self._tokens, prefixes, strict=True)
        ]
        return torch.cat(pieces)

    def _merge_prefix(self, lengths: list[int], query: Tensor, attended: Attended, prefix: Prefix) -> Tensor:
        """One span's context with its prefix; rows of equal length are merged in one call."""
        if len(set(lengths)) == 1:
            return self._merge_rows(len(lengths), query, attended, prefix)
        context, logsumexp = attended
        assert logsumexp is not None, "callers with a prefix ask for it"
        rows = zip(*(torch.split(x, lengths) for x in (query, context, logsumexp)), *prefix, strict=True)
        return torch.cat([
            self._merge_rows(1, row, Attended(own, logsumexps), Prefix(keys[None], values[None]))
            for row, own, logsumexps, keys, values in rows
        ])  # fmt: skip

    def _merge_rows(self, rows: int, query: Tensor, attended: Attended, prefix: Prefix) -> Tensor:
        context, logsumexp = attended
        assert logsumexp is not None, "callers with a prefix ask for it"
        own = Attended(self._by_head(rows, context), self._by_head(rows, logsumexp).squeeze(-1))
        return merge_prefix(self._by_head(rows, query), own, prefix).transpose(1, 2).flatten(2).flatten(0, 1)

    def _by_head(self, rows: int, x: Tensor) -> Tensor:
        """[tokens, heads * size] -> [rows, heads, tokens of a row, size]."""
        return x.view(rows, len(x) // rows, self._num_heads, -1).transpose(1, 2)


def merge_prefix(query: Tensor, attended: Attended, prefix: Prefix) -> Tensor:
    """The context with `prefix` in front of the keys: `attended` counts as one key, whose logit is its logsumexp.

    `query` is [rows, heads, queries, head size], the prefix [rows, heads, prefix, head size], its bias 0.
    """
    assert attended.logsumexp is not None, "callers with a prefix ask for it"
    logits = torch.matmul(query, prefix.keys.transpose(-1, -2)).float()
    weights = torch.cat((attended.logsumexp[..., None], logits), -1).softmax(-1).to(query.dtype)
    return weights[..., :1] * attended.context + torch.matmul(weights[..., 1:], prefix.values)


class SelfView(Protocol):
    """The tokens of its own row that each token attends to."""

    def attend_self(self, layer: int, number: int, x: Tensor, qkv: Tensor) -> Tensor:
        """The context [tokens, attention] of self-attention `number` of the model, in block `layer` of its stack.
        Queries, keys and values `qkv` are [tokens, 3 * attention], and are computed from `x`."""


class View(SelfView, Protocol):
    """What decoder tokens attend to: earlier tokens of their row, and the encoder's states of their row."""

    def attend_cross(self, layer: int, number: int, x: Tensor, query: Tensor) -> Tensor:
        """The context [tokens, attention] of cross-attention `number` of the model, in decoder block `layer`. The
        `query` is [tokens, attention], and is computed from `x`."""


class SelfRows(Protocol):
    """A `SelfView` without prefixes. Results have a logsumexp [tokens, heads] if the caller asks for it."""

    def attend_self(self, layer: int, qkv: Tensor, *, with_logsumexp: bool) -> Attended:
        """Self-attention of block `layer`; queries, keys and values are [tokens, 3 * attention]."""


class CrossRows(SelfRows, Protocol):
    """A `View` without prefixes."""

    def attend_cross(self, layer: int, query: Tensor, *, with_logsumexp: bool) -> Attended:
        """Cross-attention of decoder block `layer`; queries are [tokens, attention]."""


class PrefixedSelfView:
    """Implements `SelfView`: rows, and the prefixes of their adapters."""

    def __init__(self, rows: SelfRows, prefixes: PrefixAttention) -> None:
        self._rows, self._prefixes = rows, prefixes

    def attend_self(self, layer: int, number: int, x: Tensor, qkv: Tensor) -> Tensor:
        found = self._prefixes.find(number, x)
        attended = self._rows.attend_self(layer, qkv, with_logsumexp=found is not None)
        return self._prefixes.merge(qkv[:, : qkv.shape[1] // 3], attended, found)


class PrefixedView(PrefixedSelfView):
    """Implements `View`: a decoder's rows, and the prefixes of their adapters."""

    def __init__(self, rows: CrossRows, prefixes: PrefixAttention) -> None:
        super().__init__(rows, prefixes)
        self._cross_rows = rows

    def attend_cross(self, layer: int, number: int, x: Tensor, query: Tensor) -> Tensor:
        found = self._prefixes.find(number, x)
        attended = self._cross_rows.attend_cross(layer, query, with_logsumexp=found is not None)
        return self._prefixes.merge(query, attended, found)
