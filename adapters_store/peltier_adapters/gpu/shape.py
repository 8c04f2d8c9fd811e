"""The sizes of a batch."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Bank, head_spec


class Shape(NamedTuple):
    """The size of a batch: all tokens, all rows, the tokens of the longest row, and the banks of bodies and heads."""

    tokens: int
    rows: int
    longest: int
    bodies: frozenset[Bank]
    heads: frozenset[Bank]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Self:
        """The smallest shape for `rows`."""
        lengths = [row.num_inputs for row in rows]
        bodies = frozenset(row.body for row in rows if row.body is not None)
        heads = frozenset(row.resident.head for row in rows if row.resident is not None)
        return cls(sum(lengths), len(rows), max(lengths), bodies, heads)

    @property
    def outputs(self) -> int:
        """The logits of the widest head that has a projection."""
        specs = (head_spec(bank) for bank in self.heads)
        return max((spec.outputs for spec in specs if spec.projection), default=1)

    @property
    def reads_tokens(self) -> bool:
        """Whether a head reads every token."""
        return any(head_spec(bank).pooling == "tokens" for bank in self.heads)

    @property
    def uses_pooler(self) -> bool:
        """Whether a head reads the backbone's pooler."""
        return any(head_spec(bank).pooling == "pooler" for bank in self.heads)

    @property
    def norms_heads(self) -> bool:
        """Whether a head has a norm."""
        return any(head_spec(bank).normed for bank in self.heads)

    def covers(self, other: Self) -> bool:
        """Whether a batch of shape `other` fits into this shape."""
        sizes = zip(self[:3], other[:3], strict=True)
        return all(own >= one for own, one in sizes) and self.bodies >= other.bodies and self.heads >= other.heads
