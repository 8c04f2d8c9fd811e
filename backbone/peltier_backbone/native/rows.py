"""The rows of one call as the kernels read them: which keys their queries see (`placed_row` in kernels.h), and what the
adapters of the rows do (`table` in program.h)."""

from collections.abc import Sequence
from ctypes import Structure, addressof, c_int64
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Self

import torch
from torch import Tensor

from peltier_backbone.native.interface import INTERFACE, c_struct
from peltier_backbone.native.program import NativeProgram

# The words of a placed row. Triton kernels read them too.
ROW_WORDS = tuple(name for name, *_ in INTERFACE.structs["placed_row"]._fields_)
_BIAS_BYTES = 4
# What the layout of a row changes by with one key more: the biases of its line begin one float32 earlier.
_NEXT = torch.tensor([{"keys": 1, "bias": -_BIAS_BYTES}.get(word, 0) for word in ROW_WORDS])

_PlacedKeys, _Table = INTERFACE.structs["placed_keys"], INTERFACE.structs["table"]
_GROUP_WORDS = tuple(name for name, *_ in INTERFACE.structs["group"]._fields_)
assert _GROUP_WORDS == ("program", "base", "first", "last"), "`Table` writes these words"

# The sites at which adapters act in a layer, and that of prefixes.
STACK_SITES = tuple(INTERFACE.codes["site"])
NO_TABLE = _Table()


@c_struct("stack_call")
class StackCall(Structure):
    """The states of one call, the keys that its rows see, and the adapters' ops."""


class LineBias(NamedTuple):
    """The biases of consecutive tokens, `line` [heads, positions] in float32, contiguous, with the relative position 0
    (key - query) in the middle. The first query is token `first` of the keys' row."""

    line: Tensor
    first: int = 0

    def layout(self) -> tuple[int, int, int]:
        """The address of the first bias, and the distances between heads and queries."""
        place = self.line.shape[1] // 2 - self.first
        return self.line.data_ptr() + place * self.line.element_size(), self.line.shape[1], -1


class PlacedRow(NamedTuple):
    """`queries` queries from number `first` on, which attend to `keys` keys from number `offset` on. `bias` is
    [heads, at least queries, at least keys] in float32, and contiguous in its keys, or a line."""

    first: int
    queries: int
    offset: int
    keys: int
    bias: Tensor | LineBias | None = None

    def tokens(self) -> "list[PlacedRow]":
        """One row for each query."""
        return [self._token(number) for number in range(self.queries)]

    def _token(self, number: int) -> "PlacedRow":
        bias = self.bias
        if isinstance(bias, LineBias):
            bias = bias._replace(first=bias.first + number)
        elif bias is not None:
            bias = bias[:, number:]
        return PlacedRow(self.first + number, 1, self.offset, self.keys, bias)

    def layout(self) -> tuple[int, ...]:
        """The words of the row."""
        if self.bias is None:
            return (*self[:4], 0, 0, 0)
        if isinstance(self.bias, LineBias):
            return (*self[:4], *self.bias.layout())
        return (*self[:4], self.bias.data_ptr(), *self.bias.stride()[:2])


@dataclass(frozen=True)
class PlacedRows:
    """The `layout` of the rows of a batch, [rows, words]; `kept` owns their biases."""

    layout: Tensor
    kept: object = None

    @classmethod
    def packed(cls, lengths: Sequence[int], seen: Sequence[int], line: Tensor | None = None) -> Self:
        """Rows of `lengths` tokens back to back, each of which attends to its first `seen` tokens, with the biases of
        `line`, as in `LineBias`."""
        rows = zip(accumulate(lengths, initial=0), lengths, seen, strict=False)
        bias = (0, 0, 0) if line is None else LineBias(line).layout()
        return cls(torch.tensor([(start, length, start, keys, *bias) for start, length, keys in rows]), line)

    @classmethod
    def place(cls, rows: Sequence[PlacedRow]) -> Self:
        """Each row has at least one key."""
        return cls(torch.tensor([row.layout() for row in rows]), rows)

    @classmethod
    def tokens(cls, offsets: Sequence[int], keys: Sequence[int], line: Tensor | None = None) -> Self:
        """Single queries, of which query r attends to `keys[r]` keys from number `offsets[r]` on. `line` [heads, width]
        in float32 has the biases of `width` consecutive keys, of which the last is the last that a query sees."""
        pairs = enumerate(zip(offsets, keys, strict=True))
        if line is None:
            return cls(torch.tensor([(row, 1, offset, seen, 0, 0, 0) for row, (offset, seen) in pairs]))
        width = line.shape[1]
        end = line.data_ptr() + width * _BIAS_BYTES
        places = [(row, 1, offset, seen, end - seen * _BIAS_BYTES, width, 0) for row, (offset, seen) in pairs]
        return cls(torch.tensor(places), line)

    def see_next(self) -> None:
        """Let each row of `tokens`, which have a line, see one key more."""
        self.layout.add_(_NEXT)

    def __len__(self) -> int:
        return self.layout.size(0)


class LayerKeys:
    """Where the keys and values of each layer lie, as `of` and `stacked` find it; `kept` owns them."""

    def __init__(self, layers: Sequence[Structure], kept: object) -> None:
        self._layout, self._kept = (_PlacedKeys * len(layers))(*layers), kept
        self.address = addressof(self._layout)

    @classmethod
    def of(cls, layers: Sequence[tuple[Tensor, Tensor]], head_stride: int) -> Self:
        """`layers` are keys and values of one layout, whose first dimension counts keys. Keys of the next head begin
        `head_stride` elements further on."""
        return cls(
            [
                _PlacedKeys(
                    keys.data_ptr(), values.data_ptr(), keys.stride(0), head_stride, keys.dtype == torch.bfloat16
                )
                for keys, values in layers
            ],
            layers,
        )

    @classmethod
    def stacked(cls, data: Tensor) -> Self:
        """`data` is [layers, 2 (keys, values), slots, heads, width, head size], contiguous. Keys are counted over slots
        and heads."""
        layer, values, _, head_stride, key_stride, _ = data.stride()
        first, size, half = data.data_ptr(), data.element_size(), data.dtype == torch.bfloat16
        starts = [first + number * layer * size for number in range(data.size(0))]
        placed = [_PlacedKeys(start, start + values * size, key_stride, head_stride, half) for start in starts]
        return cls(placed, data)


class StackRows(NamedTuple):
    """Which keys each row's queries see, `cross` in a decoder. Without `own_keys` rows see keys of their batch; with
    them each row is one token, whose key becomes number `places[row]` (int64) before it attends. `positions` (int64)
    are those of tokens, for layers with rotary positions."""

    own: PlacedRows
    cross: PlacedRows | None = None
    cross_keys: LayerKeys | None = None
    own_keys: LayerKeys | None = None
    places: Tensor | None = None
    positions: Tensor | None = None

    def call(self, x: Tensor, y: Tensor, ops: "PlacedOps") -> StackCall:
        """The call that computes y from x, both [tokens, hidden]. It is valid as long as its arguments."""
        own, cross, cross_keys, own_keys, places, positions = self
        # Fields that are not given are zero.
        call = StackCall(
            x=x.data_ptr(), y=y.data_ptr(), tokens=x.size(0), half=x.dtype is torch.bfloat16,
            rows=own.layout.data_ptr(), num_rows=len(own), prefixed=ops.prefixed, sites=ops.sites_address,
        )  # fmt: skip
        if ops.table is not None:
            call.table = ops.table.layout
        if ops.gates is not None:
            call.gates, call.gate_stride = ops.gates.data_ptr(), ops.gate_stride
        if cross is not None:
            call.cross_rows, call.num_cross_rows = cross.layout.data_ptr(), len(cross)
        if cross_keys is not None:
            call.cross = cross_keys.address
        if own_keys is not None:
            call.own, call.once = own_keys.address, True
        if places is not None:
            call.places = places.data_ptr()
        if positions is not None:
            call.positions = positions.data_ptr()
        return call


@dataclass(frozen=True)
class TableGroup:
    """The next `rows` rows of a batch, their `program`, and `base`, the address of their adapter's weights."""

    rows: int
    program: NativeProgram | None = None
    base: int = 0


class Table:
    """All rows of a batch, of `lengths` tokens each, in groups; `layout` is what the kernels read."""

    def __init__(self, lengths: Sequence[int], groups: Sequence[TableGroup]) -> None:
        words: list[int] = []  # in the order of _GROUP_WORDS: an array of numbers is faster than structs
        first = 0
        for group in groups:
            program = 0 if group.program is None else group.program.address
            words += (program, group.base, first, first + group.rows)
            first += group.rows
        assert first == len(lengths), "every row is of one group"
        self._groups = (c_int64 * len(words))(*words)
        self._starts = (c_int64 * (len(lengths) + 1))(*accumulate(lengths, initial=0))
        self.num_rows = len(lengths)
        self.max_ops = max((group.program.max_ops for group in groups if group.program), default=0)
        self.layout = _Table(addressof(self._groups), len(groups), addressof(self._starts))
        self._kept = groups


class PlacedOps:
    """All that the programs of `table` do in the layers. At a site of STACK_SITES and number n it is what they have at
    place `first_places[site]` + n. `gates` is [at least `table.max_ops`, rows] in float32, or [places, at least
    `table.max_ops`, rows] to keep those of each place. Without a table it is nothing."""

    def __init__(
        self, table: Table | None, first_places: Sequence[int], gates: Tensor | None, *, prefixed: bool
    ) -> None:  # fmt: skip
        self.table, self.gates, self.prefixed = table, gates, prefixed
        self.gate_stride = gates.stride(0) if gates is not None and gates.dim() > 2 else 0
        self._sites = (c_int64 * len(STACK_SITES))(*first_places)
        self.sites_address = addressof(self._sites)


NO_OPS = PlacedOps(None, [0] * len(STACK_SITES), None, prefixed=False)
