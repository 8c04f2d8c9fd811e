"""One decoding step: the next token of every live row attends to the slots of a cache."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from peltier_backbone.cache import Cache
from peltier_backbone.prefix_attention import Attended, attend
from peltier_backbone.relative import RelativeBias


class StepView:
    """The token of row r is the next one of slot `slots[r]`. One small copy brings queries into the order of the slots;
    keys and values are not copied. Slots without a row attend too, and their results are not used.
    """

    def __init__(self, slots: Sequence[int], cache: Cache, bias: RelativeBias) -> None:
        assert len(set(slots)) == len(slots), "a slot grows by one token a step"
        self._cache, device = cache, bias.line.device
        num_slots = max(slots) + 1
        self._width = 1 + max(cache.own.lengths[slot] for slot in slots)
        self._memory_width = max(cache.memory.lengths[slot] for slot in slots)
        cache.own.reserve(num_slots, self._width)
        lengths, memory_lengths = cache.own.lengths[:num_slots], cache.memory.lengths[:num_slots]
        self._slots = torch.tensor(slots, device=device)
        self._places = torch.tensor([lengths[slot] for slot in slots], device=device)
        row_of = {slot: row for row, slot in enumerate(slots)}
        rows = [row_of.get(slot, 0) for slot in range(num_slots)]
        self._rows = None if rows == list(range(len(slots))) else torch.tensor(rows, device=device)
        kept = cache.own.data.dtype
        self._bias = _own_bias(lengths, self._width, bias).to(kept)
        self._memory_bias = _memory_bias(memory_lengths, self._memory_width, bias, kept)

    def attend_self(self, layer: int, qkv: Tensor, with_logsumexp: bool) -> Attended:
        store = self._cache.own.data[layer]  # [2, slots, heads, width, head size]
        size = qkv.shape[1] // 3
        keys_values = qkv[:, size:].view(len(qkv), 2, store.shape[2], -1)
        store[:, self._slots, :, self._places] = keys_values.to(store.dtype)
        return self._attend(qkv[:, :size], store[:, :, :, : self._width], self._bias, with_logsumexp)

    def attend_cross(self, layer: int, query: Tensor, with_logsumexp: bool) -> Attended:
        return self._attend(
            query, self._cache.memory.data[layer][..., : self._memory_width, :], self._memory_bias, with_logsumexp
        )

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
    """The bias of each slot's next token to `width` tokens, -inf to those after it, [slots * heads, 1, width]."""
    device = bias.line.device
    places = torch.tensor(lengths, device=device)
    table = bias.between(torch.arange(width, device=device) - places[:, None])  # [slots, width, heads]
    return table.transpose(1, 2).reshape(-1, 1, width)


def _memory_bias(lengths: Sequence[int], width: int, bias: RelativeBias, dtype: torch.dtype) -> Tensor | None:
    """-inf beyond the end of a slot's encoder row, [slots * heads, 1, width]; None if all rows have `width` tokens."""
    if all(length == width for length in lengths):
        return None
    heads, device = bias.line.shape[1], bias.line.device
    ended = torch.arange(width, device=device) >= torch.tensor(lengths, device=device).clamp(min=1)[:, None]
    mask = torch.zeros(ended.shape, dtype=dtype, device=device).masked_fill_(ended, -math.inf)
    return mask[:, None].expand(-1, heads, -1).reshape(-1, 1, width)
