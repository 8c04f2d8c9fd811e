"""Rows of one text share everything below the first block in which any of them is adapted.

The forward pass of an encoder runs in stages of consecutive blocks. In a stage, rows of one text that no adapter has
changed yet are one row without an adapter. A stage ends where an adapter of such rows begins to act.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from peltier_adapters.batch.row import Row

# Stages begin and end at depths: 0 is before the embeddings, 1 + b before block b.
_BEFORE_BLOCKS = 1


@dataclass(frozen=True)
class Stage:
    """The work from depth `begin` to depth `end` on `rows`, which are in `Row.order`. `places` has the row of the stage
    for each row of the batch; `complete` stages have the rows of the batch."""

    begin: int
    end: int
    rows: Sequence[Row]
    places: Sequence[int]
    complete: bool

    @property
    def layers(self) -> range:
        """The blocks of the stage."""
        return range(max(self.begin - _BEFORE_BLOCKS, 0), self.end - _BEFORE_BLOCKS)

    @property
    def num_tokens(self) -> int:
        """Tokens of its rows."""
        return sum(row.num_inputs for row in self.rows)


def plan_stages(rows: Sequence[Row], num_layers: int) -> list[Stage]:
    """The stages of a batch of `rows`, which are in `Row.order`; none if no rows share anything."""
    texts: dict[Hashable, list[int]] = {}
    for number, row in enumerate(rows):
        if row.scope is not None:
            own = row.prompted
            texts.setdefault((row.scope, own.ids, own.types, own.pads, own.offset), []).append(number)
    crowds = [numbers for numbers in texts.values() if len(numbers) > 1]
    if not crowds:
        return []
    depths = [_depth(row, num_layers) for row in rows]
    last = num_layers + _BEFORE_BLOCKS
    # The row of a text that is adapted last has nobody left to share with when its adapter begins to act.
    cuts = {depth for numbers in crowds for depth in sorted(depths[number] for number in numbers)[:-1]}
    ends = [*sorted(cuts - {0, last}), last]
    if ends == [last] and last not in cuts:
        return []
    return [_stage(rows, crowds, depths, *bounds) for bounds in pairwise([0, *ends])]


def _depth(row: Row, num_layers: int) -> int:
    """The depth at which an adapter begins to act on a row."""
    return (num_layers if row.body is None else row.body.first_block) + _BEFORE_BLOCKS


def _stage(rows: Sequence[Row], crowds: Sequence[Sequence[int]], depths: Sequence[int], begin: int, end: int) -> Stage:
    merged = [[number for number in numbers if depths[number] > begin] for numbers in crowds]
    merged = [numbers for numbers in merged if len(numbers) > 1]
    together = {number for numbers in merged for number in numbers}
    alone = [number for number in range(len(rows)) if number not in together]
    # Rows without an adapter are first in `Row.order`.
    found = [Row(rows[numbers[0]].prompted) for numbers in merged] + [rows[number] for number in alone]
    places = [0] * len(rows)
    for place, numbers in enumerate([*merged, *([number] for number in alone)]):
        for number in numbers:
            places[number] = place
    return Stage(begin, end, found, places, complete=not merged)


def spread(x: Tensor, before: Stage, after: Stage) -> Tensor:
    """The states of the rows of a stage from those of the stage before it."""
    sources = dict(zip(after.places, before.places, strict=True))
    return rows_of(x, before, [sources[place] for place in range(len(after.rows))])


def rows_of(x: Tensor, stage: Stage, places: Sequence[int]) -> Tensor:
    """The states of the stage's rows at `places`, in this order, from those of all its rows."""
    states = torch.split(x, [row.num_inputs for row in stage.rows])
    return torch.cat([states[place] for place in places])
