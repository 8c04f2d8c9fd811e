"""The rows of a T5 for native calls: of its encoder, of given targets, and of the next tokens of texts."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from peltier_backbone.attention.relative import RelativeBias, RowBias
from peltier_backbone.decoding.cache import Cache, EncoderKV
from peltier_backbone.decoding.targets import Targets, find_biases
from peltier_backbone.native.rows import LayerKeys, LineBias, PlacedRow, PlacedRows, StackRows

_Biases = Sequence[Tensor | LineBias | None]


def place_encoder(lengths: Sequence[int], bias: RelativeBias) -> StackRows:
    """Packed rows of `lengths` tokens, each of which sees its whole row."""
    line = LineBias(bias.line_around(max(lengths)))
    return StackRows(PlacedRows.place(list(_rows(lengths, lengths, [line] * len(lengths)))))


def place_targets(
    targets: Targets, memory: EncoderKV, bias: RelativeBias, num_heads: int, *, by_token: bool
) -> StackRows:
    """The nodes of `targets` as in `TreeView`; row r reads memory row r. `by_token`: each node is a row of its own, as
    prefixes of adapters need it, because each token of a decoder is a row of its adaptation."""
    own = list(_rows(targets.lengths, targets.lengths, _row_biases(targets, bias)))
    cross = list(_rows(targets.lengths, memory.lengths, [None] * len(memory.lengths)))
    if by_token:
        own, cross = ([token for row in rows for token in row.tokens()] for rows in (own, cross))
    size = memory.key_values[0].shape[1] // 2
    keys = LayerKeys.of([(one[:, :size], one[:, size:]) for one in memory.key_values], size // num_heads)
    return StackRows(PlacedRows.place(own), PlacedRows.place(cross), keys)


def _rows(lengths: Sequence[int], key_lengths: Sequence[int], biases: _Biases) -> Iterator[PlacedRow]:
    """Rows of queries back to back, and so are their keys."""
    queries, keys = accumulate(lengths, initial=0), accumulate(key_lengths, initial=0)
    places = zip(queries, lengths, keys, key_lengths, biases, strict=False)
    return (PlacedRow(*place) for place in places)


def _row_biases(targets: Targets, bias: RelativeBias) -> _Biases:
    biases = find_biases(targets, bias)
    if isinstance(biases, RowBias):
        return [LineBias(bias.line_around(biases.width))] * len(targets.lengths)
    known = {key: one.float().contiguous() for key, one in {id(one): one for one in biases}.items()}
    return [known[id(one)] for one in biases]


class StepRows:
    """The next token of row r is that of slot `slots[r]` of the cache, and sees the tokens of its slot and itself. It
    serves step after step, until rows join or leave the cache: `begin` a step, compute it with the rows that `begin`
    returns, and `end` it."""

    def __init__(self, slots: Sequence[int], cache: Cache, bias: RelativeBias) -> None:
        assert len(set(slots)) == len(slots), "a slot grows by one token a step"
        self._slots, self._own, self._bias = tuple(slots), cache.own, bias
        self._num_slots = max(slots) + 1
        self._width = max(cache.own.lengths[slot] for slot in slots)
        keys = [cache.memory.lengths[slot] for slot in slots]
        self._cross = PlacedRows.tokens(cache.memory.first_keys(slots), keys)
        self._cross_keys = LayerKeys.stacked(cache.memory.data)
        self._placed: Tensor | None = None

    def begin(self) -> StackRows:
        """Make room for one more token of each slot. Returns the rows of the step."""
        self._width += 1
        self._own.reserve(self._num_slots, self._width)
        if self._placed is not self._own.data:
            self._rows, self._placed = self._place(), self._own.data
        return self._rows

    def end(self) -> None:
        """End the step, which has written its tokens to the cache."""
        self._own.grow(self._slots)
        self._rows.own.see_next()
        self._numbers += 1

    def _place(self) -> StackRows:
        own = self._own
        first, lengths = own.first_keys(self._slots), [own.lengths[slot] for slot in self._slots]
        line = self._bias.line_before(own.data.shape[4])
        rows = PlacedRows.tokens(first, [length + 1 for length in lengths], line)
        self._numbers = torch.tensor([key + length for key, length in zip(first, lengths, strict=True)])
        return StackRows(rows, self._cross, self._cross_keys, LayerKeys.stacked(own.data), self._numbers)
