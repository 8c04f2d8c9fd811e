"""One row of a batch: a tokenised input and the adapter that answers it; and what rows of one text share."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import torch
from peltier_backbone.text.packing import Encoded
from torch import Tensor

from peltier_adapters.artifact.label_tree import LabelTree
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.residency.bank import Bank, Resident, Slot

RowGates = dict[str, list[float | None]]

# Stages begin and end at depths: 0 is before the embeddings, 1 + b before block b.
_BEFORE_BLOCKS = 1


@dataclass(slots=True, unsafe_hash=True)
class Row:
    """A tokenised input and the adapter that answers it. It never changes; it is not frozen because a frozen one takes
    four times as long to create.

    Without an adapter, the output is the last hidden state of the first token. With `bare`, the adapter's head reads
    the output of the unadapted backbone. T5 scores the label strings of `tree`, or without it those of the adapter's
    task.

    Rows of one text and one `scope` share what no adapter changes (`Stage`); a row without a scope shares nothing.
    """

    encoded: Encoded
    resident: Resident | None = None
    bare: bool = False
    tree: LabelTree | None = None
    scope: str | None = None

    @property
    def body(self) -> Bank | None:
        return None if self.resident is None or self.bare else self.resident.body

    @property
    def slot(self) -> Slot | None:
        """The body's slot in its bank."""
        return None if self.resident is None or self.bare else self.resident.body_slot

    @property
    def order(self) -> tuple[bool, bool, int, int]:
        """The sort key of rows in a batch. Rows with the same bank and slot are neighbours, and so are rows without
        prefixes or norms."""
        if self.body is None or self.slot is None:
            return (False, False, -1, -1)
        return (self.body.has_prefix, self.body.has_norm, self.body.number, self.slot.number)

    @property
    def prompted(self) -> Encoded:
        """The tokens after one placeholder for each soft token of the adapter, with the adapter's position offset."""
        body = self.body
        if body is None or not (body.prompt_length or body.position_offset):
            return self.encoded
        soft, offset = (0,) * body.prompt_length, body.position_offset
        return replace(self.encoded, ids=soft + self.encoded.ids, types=soft + self.encoded.types, offset=offset)

    @property
    def shared_key(self) -> Hashable | None:
        """Equal for rows that share what no adapter changes; None for a row without a scope."""
        if self.scope is None:
            return None
        own = self.prompted
        return (self.scope, own.ids, own.types, own.pads, own.offset)

    @property
    def scored(self) -> LabelTree | None:
        """The label strings that a T5 scores for this row."""
        return self.tree or (None if self.resident is None else self.resident.tree)

    @property
    def num_inputs(self) -> int:
        """The number of tokens of `prompted`."""
        return len(self.encoded.ids) + (0 if self.body is None else self.body.prompt_length)

    @property
    def num_targets(self) -> int:
        """The number of tokens of the label strings that a T5 scores."""
        return 0 if self.scored is None else len(self.scored.ids)


def have_terms(rows: Sequence[Row]) -> bool:
    """Whether the answer of one of the rows is terms of the vocabulary."""
    return any(row.resident is not None and row.resident.head.num_terms is not None for row in rows)


@dataclass(frozen=True)
class RowOutput:
    """The output of one row. `logits` are [outputs] in float32 on the CPU, [tokens, outputs] if its head reads every
    token, or [terms, 2] if it has terms. `gates`, if recorded, have for each part one value per layer (on T5, per
    encoder layer), None for a layer without that part."""

    logits: Tensor
    gates: RowGates | None = None


def group_rows(rows: Sequence[Row], *, record_gates: bool) -> list[AdapterGroup]:
    """Neighbouring rows that share an adapter."""
    runs = groupby(rows, key=lambda row: (row.body, row.slot))
    return [_group(list(members), record_gates) for _, members in runs]


def repeat_rows(rows: Sequence[Row], num_tokens: Sequence[int]) -> list[Row]:
    """A row for each decoder token, `num_tokens` of each row: a gate must not see later tokens."""
    return [row for row, num in zip(rows, num_tokens, strict=True) for _ in range(num)]


def _group(rows: Sequence[Row], record_gates: bool) -> AdapterGroup:
    body, slot = rows[0].body, rows[0].slot
    if body is None or slot is None:
        return AdapterGroup(len(rows))
    return AdapterGroup(len(rows), body.program, slot.read(), {} if record_gates else None)


LayerGates = dict[str, dict[int, float]]


def with_gates(outputs: Sequence[Tensor], gates: Sequence[LayerGates], num_layers: int) -> list[RowOutput]:
    """The outputs of rows, with the `gates` that were recorded for each in the first `num_layers` layers."""
    return [
        RowOutput(
            logits, {label: [own.get(layer) for layer in range(num_layers)] for label, own in row.items()} or None
        )
        for logits, row in zip(outputs, gates, strict=True)
    ]


def read_gates(groups: Sequence[AdapterGroup]) -> list[LayerGates]:
    """The gates that were recorded for each row of `groups`, by label and layer."""
    return [
        {
            label: {layer: float(gates[row]) for layer, gates in own.items()}
            for label, own in (group.gates or {}).items()
        }
        for group in groups
        for row in range(group.rows)
    ]


def join_gates(stages: Sequence["Stage"], gates: Sequence[Sequence[LayerGates]]) -> list[LayerGates]:
    """The gates of each row of a batch, from those of the rows of its `stages`."""
    joined: list[LayerGates] = [{} for _ in stages[0].places]
    for stage, found in zip(stages, gates, strict=True):
        for row, place in zip(joined, stage.places, strict=True):
            for label, own in found[place].items():
                row.setdefault(label, {}).update(own)
    return joined


@dataclass(frozen=True)
class Stage:
    """A part of the forward pass of an encoder, of consecutive blocks. Rows of one text that no adapter has changed yet
    are one row without an adapter. A stage ends where an adapter of such rows begins to act.

    It is the work from depth `begin` to depth `end` on `rows`, which are in `Row.order`. `places` has the row of the
    stage for each row of the batch; `complete` stages have the rows of the batch."""

    begin: int
    end: int
    rows: Sequence[Row]
    places: Sequence[int]
    complete: bool

    @property
    def layers(self) -> range:
        """The blocks of the stage."""
        return range(max(self.begin - _BEFORE_BLOCKS, 0), self.end - _BEFORE_BLOCKS)


def plan_stages(rows: Sequence[Row], num_layers: int) -> list[Stage]:
    """The stages of a batch of `rows`, which are in `Row.order`; none if no rows share anything."""
    texts: dict[Hashable, list[int]] = {}
    for number, row in enumerate(rows):
        if (key := row.shared_key) is not None:
            texts.setdefault(key, []).append(number)
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
