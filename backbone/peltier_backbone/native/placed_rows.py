"""Rows of queries and where their keys and biases lie, as the kernels read them (`placed_row` in kernels.h)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, Self

import torch
from torch import Tensor

from peltier_backbone.native.interface import INTERFACE

_BIAS_BYTES = 4
# The words of a row. Triton kernels read them too.
_WORDS = [name for name, *_ in INTERFACE.structs["placed_row"]._fields_]
_BIAS, _BIAS_HEAD = _WORDS.index("bias"), _WORDS.index("bias_head")
NUM_ROW_WORDS = len(_WORDS)
# What the layout of a row changes by with one key more: the biases of its line begin one float32 earlier.
_NEXT = torch.tensor([{"keys": 1, "bias": -_BIAS_BYTES}.get(word, 0) for word in _WORDS])


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
    """The rows of a batch; it keeps their biases alive."""

    layout: Tensor
    rows: Sequence[PlacedRow]
    line: Tensor | None = None

    @classmethod
    def packed(cls, lengths: Sequence[int], seen: Sequence[int]) -> Self:
        """Rows of `lengths` tokens back to back, each of which attends to its first `seen` tokens."""
        starts = accumulate(lengths, initial=0)
        rows = zip(starts, lengths, seen, strict=False)
        return cls.place([PlacedRow(start, length, start, keys) for start, length, keys in rows])

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
            return cls(torch.tensor([(row, 1, offset, seen, 0, 0, 0) for row, (offset, seen) in pairs]), ())
        width = line.shape[1]
        end = line.data_ptr() + width * line.element_size()
        places = [(row, 1, offset, seen, end - seen * line.element_size(), width, 0) for row, (offset, seen) in pairs]
        return cls(torch.tensor(places), (), line)

    @classmethod
    def near(cls, lengths: Sequence[int], window: int, device: torch.device) -> Self:
        """Rows of `lengths` tokens back to back, each of which attends to the tokens of its row that are at most
        `window` away: by biases, which are one line for all heads and rows."""
        longest = max(lengths)
        line = torch.full((2 * longest - 1,), float("-inf"), device=device)
        line[max(longest - 1 - window, 0) : longest + window] = 0
        middle = line.data_ptr() + (longest - 1) * line.element_size()
        starts = accumulate(lengths, initial=0)
        places = [(start, num, start, num, middle, 0, -1) for start, num in zip(starts, lengths, strict=False)]
        return cls(torch.tensor(places), (), line)

    def from_head(self, first: int) -> Self:
        """The rows with the biases of the heads from `first` on."""
        if first == 0:
            return self
        layout = self.layout.clone()
        layout[:, _BIAS] += first * _BIAS_BYTES * layout[:, _BIAS_HEAD]
        return type(self)(layout, self.rows, self.line)

    def see_next(self) -> None:
        """Let each of `tokens` with a line see one key more."""
        assert self.line is not None, "rows have another bias for each key"
        self.layout.add_(_NEXT)

    def __len__(self) -> int:
        return len(self.layout)

    @cached_property
    def longest(self) -> int:
        """The most queries of a row."""
        return int(self.layout[:, 1].max())

    def on(self, device: torch.device) -> Tensor:
        """The layout on a device, which is copied there once."""
        if device not in self._copies:
            self._copies[device] = self.layout.to(device)
        return self._copies[device]

    @cached_property
    def _copies(self) -> dict[torch.device, Tensor]:
        return {}


class RowKernels(ABC):
    """The attention kernels of a device other than the CPU, and the prefixes of the adapters of a batch, which they
    read where they lie. `num_rows` is the number of rows of the batch."""

    num_rows: int

    @abstractmethod
    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, head_stride: int, rows: PlacedRows, num_heads: int, *,
        scale: float = 1.0,
    ) -> Tensor:  # fmt: skip
        """The context of `query` [queries, size]. There are `head_stride` elements between the heads of a key."""
