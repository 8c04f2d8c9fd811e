"""Rows of queries and where their keys and biases lie, in the memory layout of the kernels (`attention.c`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Self

import torch
from torch import Tensor


class PlacedRow(NamedTuple):
    """`queries` queries from number `first` on, which attend to `keys` keys from number `offset` on. `bias` is
    [heads, at least queries, at least keys] in float32, and contiguous in its keys."""

    first: int
    queries: int
    offset: int
    keys: int
    bias: Tensor | None = None

    def layout(self) -> tuple[int, ...]:
        """`placed_row` in attention.c."""
        bias = (0, 0, 0) if self.bias is None else (self.bias.data_ptr(), *self.bias.stride()[:2])
        return (*self[:4], *bias)


@dataclass(frozen=True)
class PlacedRows:
    """The rows of a batch; their biases live as long as it does."""

    layout: Tensor
    rows: Sequence[PlacedRow]

    @classmethod
    def packed(cls, lengths: Sequence[int], seen: Sequence[int]) -> Self:
        """Rows of `lengths` tokens back to back, each of which attends to its first `seen` tokens."""
        starts = accumulate(lengths, initial=0)
        rows = zip(starts, lengths, seen, strict=False)
        return cls.place([PlacedRow(start, length, start, keys) for start, length, keys in rows])

    @classmethod
    def place(cls, rows: Sequence[PlacedRow]) -> Self:
        return cls(torch.tensor([row.layout() for row in rows]), rows)

    def __len__(self) -> int:
        return len(self.layout)
