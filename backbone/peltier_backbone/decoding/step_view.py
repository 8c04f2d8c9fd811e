"""One decoding step: the next token of every live row attends to the slots of a cache."""

import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from peltier_backbone.attention.relative import RelativeBias
from peltier_backbone.attention.view import Attended, attend
from peltier_backbone.decoding.cache import Cache


class StepView:
    """The next token of row r is that of slot `slots[r]`. A view serves step after step, until rows join or leave the
    cache. Keys and values are not copied: one small copy brings queries into the order of the slots, and slots without
    a row attend too, with results that are not used.
    """

    _step_bias: Tensor | None = None
    _key_numbers: Tensor

    def __init__(self, slots: Sequence[int], cache: Cache, relative: RelativeBias) -> None:
        assert len(set(slots)) == len(slots), "a slot grows by one token a step"
        self._cache, self._relative, self._row_slots = cache, relative, tuple(slots)
        self._width = max(cache.own.lengths[slot] for slot in slots)
        self._memory_width = max(cache.memory.lengths[slot] for slot in slots)
        self._num_slots = max(slots) + 1
        self._placed: Tensor | None = None

    def begin(self) -> None:
        """Begin a step: make room for one more token of each slot."""
        own = self._cache.own
        self._width += 1
        own.reserve(self._num_slots, self._width)
        if self._placed is not own.data:
            self._place_tokens()
        self._step_bias = None

    def end(self) -> None:
        """End a step, which has written its tokens to the cache."""
        self._cache.own.grow(self._row_slots)
        self._key_numbers += 1

    def _place_tokens(self) -> None:
        """Find where each row's token goes."""
        own = self._cache.own
        first, lengths = own.first_keys(self._row_slots), [own.lengths[slot] for slot in self._row_slots]
        numbers = [key + length for key, length in zip(first, lengths, strict=True)]
        self._key_numbers = torch.tensor(numbers, device=self._slots.device)
        self._placed = own.data

    @cached_property
    def _slots(self) -> Tensor:
        return torch.tensor(self._row_slots, device=self._relative.line.device)

    @cached_property
    def _rows(self) -> Tensor | None:
        """The row of each slot, or any for a slot without one; None if they are in order."""
        row_of = {slot: row for row, slot in enumerate(self._row_slots)}
        rows = [row_of.get(slot, 0) for slot in range(self._num_slots)]
        return None if rows == list(range(len(self._row_slots))) else torch.tensor(rows, device=self._slots.device)

    def _bias(self, layer: int) -> Tensor:
        """Of the step's queries in torch, [slots * heads, 1, width]. It is computed once for all layers."""
        if self._step_bias is None:
            own = self._cache.own
            bias = _own_bias(own.lengths[: self._num_slots], self._width, self._relative)
            self._step_bias = bias.to(own.data.dtype)
        first, num_heads = self._relative.first_head(layer), self._relative.num_heads
        return self._step_bias[:, first : first + num_heads].flatten(0, 1)[:, None]

    @cached_property
    def _memory_bias(self) -> Tensor | None:
        lengths, kept = self._cache.memory.lengths[: self._num_slots], self._cache.own.data.dtype
        return _memory_bias(lengths, self._memory_width, self._relative, kept)

    def attend_self(self, layer: int, qkv: Tensor, *, with_logsumexp: bool) -> Attended:
        store = self._cache.own.data[layer]  # [2, slots, heads, width, head size]
        size = qkv.shape[1] // 3
        self._cache.own.write(layer, qkv[:, size:], self._key_numbers)
        return self._attend(qkv[:, :size], store[:, :, :, : self._width], self._bias(layer), with_logsumexp)

    def attend_cross(self, layer: int, query: Tensor, *, with_logsumexp: bool) -> Attended:
        store = self._cache.memory.data[layer]
        return self._attend(query, store[..., : self._memory_width, :], self._memory_bias, with_logsumexp)

    def _attend(self, query: Tensor, keys_values: Tensor, bias: Tensor | None, with_logsumexp: bool) -> Attended:
        ordered = query if self._rows is None else query.index_select(0, self._rows)  # [slots, size]
        heads, head_size = keys_values.shape[2], keys_values.shape[4]
        keys, values = keys_values[:, : len(ordered)].flatten(1, 2).unbind()  # [slots * heads, width, head size]
        queries = ordered.reshape(-1, 1, head_size).to(keys.dtype)
        context, logsumexps = attend(queries, keys, values, bias, with_logsumexp=with_logsumexp)
        context = context.view(len(ordered), -1).to(query.dtype)
        logsumexps = None if logsumexps is None else logsumexps.view(-1, heads)
        if self._rows is None:
            return Attended(context, logsumexps)
        return Attended(
            context.index_select(0, self._slots),
            None if logsumexps is None else logsumexps.index_select(0, self._slots),
        )


def _own_bias(lengths: Sequence[int], width: int, bias: RelativeBias) -> Tensor:
    """The bias of each slot's next token to `width` tokens, -inf to those after it, [slots, heads, width]."""
    device = bias.line.device
    places = torch.tensor(lengths, device=device)
    table = bias.between(torch.arange(width, device=device) - places[:, None])  # [slots, width, heads]
    return table.transpose(1, 2).contiguous()


def _memory_bias(lengths: Sequence[int], width: int, bias: RelativeBias, dtype: torch.dtype) -> Tensor | None:
    """-inf beyond the end of a slot's encoder row, [slots * heads, 1, width]; None if all rows have `width` tokens."""
    if all(length == width for length in lengths):
        return None
    heads, device = bias.num_heads, bias.line.device
    ended = torch.arange(width, device=device) >= torch.tensor(lengths, device=device).clamp(min=1)[:, None]
    mask = torch.zeros(ended.shape, dtype=dtype, device=device).masked_fill_(ended, -math.inf)
    return mask[:, None].expand(-1, heads, -1).reshape(-1, 1, width)
