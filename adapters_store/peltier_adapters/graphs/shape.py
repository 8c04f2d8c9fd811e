"""What batches have in common that one graph can serve."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple, Self

from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Bank

# A larger batch keeps the device busy without a graph. The limit has not been measured on a GPU:
# `benchmarks/gpu/run.py`, section "graph", field of_launched, shows where graphs stop helping.
MAX_TOKENS = 2048
_MIN_TOKENS = 32
_MIN_GROUPS = 2  # one group alone is a plain product everywhere else
_MIN_ROW_TOKENS = 16


class BankShape(NamedTuple):
    """Room for so many adapters of one bank, and so many rows that they answer."""

    bank: Bank
    groups: int
    rows: int


class Shape(NamedTuple):
    """Room for a batch: tokens and rows altogether, tokens of the longest row, and each bank in the batch's order."""

    tokens: int
    rows: int
    longest: int
    banks: tuple[BankShape, ...]

    def covers(self, other: Self) -> bool:
        """A batch of shape `other` fits, and costs little more than in its own."""
        return (
            (self.tokens, self.longest) == (other.tokens, other.longest)
            and self.rows >= other.rows
            and len(self.banks) == len(other.banks)
            and all(map(_covers, self.banks, other.banks))
        )


def _covers(one: BankShape, other: BankShape) -> bool:
    return one.bank is other.bank and one.groups >= other.groups and one.rows >= other.rows


def shape_of(rows: Sequence[Row]) -> Shape | None:
    """The smallest shape with room for `rows`, which are in `Row.order`; None for what no graph serves."""
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
    """The rows of each bank, in order; rows without an adapter are of none."""
    return [(bank, list(own)) for bank, own in groupby(rows, key=lambda row: row.body) if bank is not None]


def round_up(count: int) -> int:
    """To a power of two."""
    return 1 << (count - 1).bit_length()


def round_tokens(count: int) -> int:
    """To the next quarter of a power of two: by less than a quarter, and to few different numbers."""
    step = max(round_up(count) // 8, _MIN_TOKENS)
    return -(-count // step) * step
