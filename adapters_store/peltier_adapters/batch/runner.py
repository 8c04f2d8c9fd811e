"""The interface of what computes the batches of a backbone. `choice.py` chooses one."""

from collections.abc import Sequence
from typing import Protocol

from peltier_backbone.decoding.cache import Cache
from torch import Tensor

from peltier_adapters.batch.row import Row, RowOutput


class Steps(Protocol):
    """The next steps of rows, until rows join or leave the cache. Row r is decoded in slot r of the slots given."""

    def __call__(self, tokens: Sequence[int]) -> Tensor:
        """The next-token logits [rows, vocab] after one more token of each row. Each slot grows by its token."""


class Runner(Protocol):
    """Computes the batches of one backbone in one way. All rows are in `Row.order`; `join` and `arrange` are for T5."""

    @property
    def shares_blocks(self) -> bool:
        """Whether `run` computes the blocks that no adapter changes once for rows of one text (`plan_stages`)."""

    def run(self, rows: Sequence[Row], *, record_gates: bool = False) -> list[RowOutput]:
        """One output for each row, which does not depend on the other rows."""

    def join(self, rows: Sequence[Row], copies: Sequence[int], cache: Cache) -> list[list[int]]:
        """Encode rows, and assign `copies[r]` slots of the cache to row r; returns the slots of each."""

    def arrange(self, rows: Sequence[Row], slots: Sequence[int], cache: Cache) -> Steps:
        """The next steps of rows in their `slots`."""

    def find_likeliest(self, logits: Tensor) -> list[tuple[int, float]]:
        """The likeliest token of each row of the next-token logits [rows, vocab] in float32, the first of equal ones,
        and its log-probability. That of a row with a NaN or a positive infinity is not finite."""
