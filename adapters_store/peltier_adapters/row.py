"""One row of a batch: a tokenised input, and the adapter that answers it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from peltier_backbone.load import Backbone
from peltier_backbone.packing import Encoded
from torch import Tensor

from peltier_adapters.bank import Bank, Resident, Slot
from peltier_adapters.label_tree import LabelTree
from peltier_adapters.mixture import Layout, Slice, create_slice
from peltier_adapters.tensors import Tensors

Gates = dict[str, list[float | None]]


@dataclass(frozen=True)
class Row:
    """A tokenised input and the adapter that answers it.

    Without an adapter the output is the first token's last hidden state; with `bare` the adapter's head reads the
    unadapted backbone. On T5 the label strings of the adapter's task are scored, or those of `tree`.
    """

    encoded: Encoded
    resident: Resident | None = None
    bare: bool = False
    tree: LabelTree | None = None

    @property
    def body(self) -> Bank | None:
        return None if self.resident is None or self.bare else self.resident.body

    @property
    def slot(self) -> Slot | None:
        """The body's slot in its bank."""
        return None if self.resident is None or self.bare else self.resident.body_slot

    @property
    def order(self) -> tuple[bool, bool, int, int]:
        """Neighbours share a bank and a slot; rows without prefixes or norms stand together."""
        if self.body is None or self.slot is None:
            return (False, False, -1, -1)
        return (self.body.has_prefix, self.body.has_norm, self.body.number, self.slot.number)

    @property
    def prompted(self) -> Encoded:
        """The tokens with a placeholder for each soft token of the adapter in front, at the positions it gives them."""
        body = self.body
        if body is None or not (body.prompt_length or body.position_offset):
            return self.encoded
        soft, offset = (0,) * body.prompt_length, body.position_offset
        return replace(self.encoded, ids=soft + self.encoded.ids, types=soft + self.encoded.types, offset=offset)

    @property
    def scored(self) -> LabelTree | None:
        """The label strings that a T5 scores for this row."""
        return self.tree or (None if self.resident is None else self.resident.tree)

    @cached_property
    def num_tokens(self) -> int:
        """What the row costs: soft tokens and label tokens count."""
        return len(self.prompted) + (0 if self.scored is None else len(self.scored.ids))


@dataclass(frozen=True)
class RowOutput:
    """`logits` [outputs] in float32 on the CPU; `gates` per part one value a layer (on T5 of the encoder; None
    for a layer without that part), where they were recorded."""

    logits: Tensor
    gates: Gates | None = None


def create_slices(
    backbone: Backbone, layout: Layout, rows: Sequence[Row], *, record_gates: bool = False
) -> Iterator[Slice]:
    """The slices of rows in `Row.order`; `layout` has one entry for each of `rows`."""
    first = 0
    for bank, group in groupby(rows, key=lambda row: row.body):
        slots = [row.slot for row in group]
        distinct = {slot: number for number, slot in enumerate(dict.fromkeys(slots))}
        own = [slot for slot in distinct if slot]
        parts, tensors = ((), Tensors({})) if bank is None else (bank.parts, bank.gather(own))
        groups = [distinct[slot] for slot in slots]
        yield create_slice(backbone, layout, first, groups, parts, tensors, record_gates=record_gates)
        first += len(slots)


def row_gates(one: Slice, row: int) -> Gates | None:
    """What the gates of a slice's row were, where they were recorded."""
    gates, layers = one.context.gates, range(one.context.backbone.config.num_layers)
    if not gates:
        return None
    return {
        label: [float(own[layer][row]) if layer in own else None for layer in layers] for label, own in gates.items()
    }
