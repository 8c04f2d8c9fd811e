"""The shape of a batch. One graph serves all batches of a shape."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple, Self

from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Bank

# A larger batch keeps the device busy without a graph. The limit has not been measured on a GPU:
# `benchmarks/gpu/run.py`, section "graph", field of_launched, shows where graphs stop helping.
MAX_TOKENS = 2048
_MIN_TOKENS = 32
_MIN_GROUPS = 2  # other code computes a single group as a plain matrix product
_MIN_ROW_TOKENS = 16


class BankShape(NamedTuple):
    """The maximum of adapters (`groups`) of one bank in a batch, and of rows that they answer."""

    bank: Bank
    groups: int
    rows: int


class Shape(NamedTuple):
    """The size of a batch: all tokens, all rows, the tokens of the longest row, and the banks in the batch's order."""

    tokens: int
    rows: int
    longest: int
    banks: tuple[BankShape, ...]

    def covers(self, other: Self) -> bool:
        """Whether a batch of shape `other` fits into this shape and costs little more in it than in its own."""
        return (
            (self.tokens, self.longest) == (other.tokens, other.longest)
            and self.rows >= other.rows
            and len(self.banks) == len(other.banks)
            and all(map(_covers, self.banks, other.banks))
        )


def _covers(one: BankShape, other: BankShape) -> bool:
    return one.bank is other.bank and one.groups >= other.groups and one.rows >= other.rows


def shape_of(rows: Sequence[Row]) -> Shape | None:
    """The smallest shape for `rows`, which are in `Row.order`; None if no graph serves them."""
    lengths = [len(row.prompted) for row in rows]
    if sum(lengths) > MAX_TOKENS or any(row.encoded.pads for row in rows):
        return None
    return Shape(
        tokens=round_tokens(sum(lengths)),
        rows=round_up(len(rows)),
        longest=max(round_up(max(lengths)), _MIN_ROW_TOKENS),
        banks=tuple(
            BankShape(bank, max(round_up(len({row.slot for row in own})), _MIN_GROUPS), round_up(len(own)))
            for bank, own in runs_of(rows)
        ),
    )


def runs_of(rows: Sequence[Row]) -> list[tuple[Bank, list[Row]]]:
    """Each bank with its rows, in order. Rows without an adapter are left out."""
    return [(bank, list(own)) for bank, own in groupby(rows, key=lambda row: row.body) if bank is not None]


def round_up(count: int) -> int:
    """The smallest power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()


def round_tokens(count: int) -> int:
    """`count`, rounded up to a multiple of max(32, p / 4), where p is the largest power of two below `count`. So there
    are few different sizes."""
    step = max(round_up(count) // 8, _MIN_TOKENS)
    return -(-count // step) * step
