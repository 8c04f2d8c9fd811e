"""Prefix keys and values of spans of rows, joined to what the rows attended to without them."""

from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from peltier_backbone.adaptation import Adaptation
from peltier_backbone.attention import Prefix
from peltier_backbone.products import Attended, merge_prefix


class PrefixAttention:
    """Rows of `lengths` tokens in the spans of `adaptation`; rows without a prefix pay for none."""

    def __init__(self, adaptation: Adaptation, lengths: Sequence[int], num_heads: int) -> None:
        self._adaptation, self._num_heads = adaptation, num_heads
        starts = list(accumulate(lengths, initial=0))
        spans = adaptation.spans(len(lengths))
        self._lengths = [list(lengths[first:last]) for first, last in spans]
        self._tokens = [slice(starts[first], starts[last]) for first, last in spans]

    def attend(self, attention: int, x: Tensor, query: Tensor, attend: Callable[[bool], Attended]) -> Tensor:
        """The context [tokens, size] of `query` [tokens, size], made of `x`: what `attend` gives (with totals if it is
        told so), and the prefixes of attention number `attention`.
        """
        prefixes = [self._adaptation.prefix(attention, span, x[tokens]) for span, tokens in enumerate(self._tokens)]
        if all(prefix is None for prefix in prefixes):
            return attend(False).context
        context, total = attend(True)
        assert total is not None, "totals were asked for"
        pieces = [
            context[tokens]
            if prefix is None
            else self._merge_prefix(lengths, query[tokens], Attended(context[tokens], total[tokens]), prefix)
            for lengths, tokens, prefix in zip(self._lengths, self._tokens, prefixes, strict=True)
        ]
        return torch.cat(pieces)

    def _merge_prefix(self, lengths: list[int], query: Tensor, attended: Attended, prefix: Prefix) -> Tensor:
        """One span's context with its prefix: all rows at once where they are equally long."""
        if len(set(lengths)) == 1:
            return self._merge_rows(len(lengths), query, attended, prefix)
        context, total = attended
        assert total is not None, "totals were asked for"
        rows = zip(*(torch.split(x, lengths) for x in (query, context, total)), *prefix, strict=True)
        return torch.cat([
            self._merge_rows(1, own, Attended(one, its_total), Prefix(keys[None], values[None]))
            for own, one, its_total, keys, values in rows
        ])  # fmt: skip

    def _merge_rows(self, rows: int, query: Tensor, attended: Attended, prefix: Prefix) -> Tensor:
        def heads(x: Tensor) -> Tensor:
            return x.view(rows, len(x) // rows, self._num_heads, -1).transpose(1, 2)

        context, total = attended
        assert total is not None, "totals were asked for"
        joined = merge_prefix(heads(query), Attended(heads(context), heads(total).squeeze(-1)), prefix)
        return joined.transpose(1, 2).flatten(2).flatten(0, 1)
