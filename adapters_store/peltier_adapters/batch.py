"""One forward of rows of any tenants, tasks and methods."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Encoded, Packed
from torch import Tensor

from peltier_adapters.bank import Bank, Resident, head_spec
from peltier_adapters.errors import InputError
from peltier_adapters.manifest import Input, TaskSpec
from peltier_adapters.mixture import Mixture, Slice, create_slice
from peltier_adapters.parts import head
from peltier_adapters.parts.part import Tensors


@dataclass(frozen=True)
class Row:
    """A tokenised input and the adapter that answers it.

    Without an adapter the output is the first token's last hidden state; with `bare` the adapter's head reads the
    unadapted backbone.
    """

    encoded: Encoded
    resident: Resident | None = None
    bare: bool = False

    @property
    def body(self) -> Bank | None:
        return None if self.resident is None or self.bare else self.resident.body

    @property
    def slot(self) -> int:
        """The body's slot in its bank."""
        return -1 if self.resident is None or self.bare else self.resident.body_slot

    @property
    def order(self) -> tuple[bool, bool, int, int]:
        """Neighbours share a bank and a slot; rows without prefixes or norms stand together."""
        if self.body is None:
            return (False, False, -1, self.slot)
        kinds = {part.kind for part in self.body.parts}
        return ("prefix" in kinds, "norm" in kinds, self.body.number, self.slot)


@dataclass(frozen=True)
class RowOutput:
    """`logits` [outputs] in float32 on the CPU; `gates` per part one value a layer, where they were recorded."""

    logits: Tensor
    gates: dict[str, list[float]] | None = None


def encode_input(backbone: Backbone, task: TaskSpec, value: Input, *, truncate: bool = True) -> Encoded:
    """Tokenise one input of a task; an `InputError` says why it does not fit."""
    if isinstance(value, str) != (task.inputs == "single"):
        wanted = "one text" if task.inputs == "single" else "a pair of texts [text, pair]"
        found = "one text" if isinstance(value, str) else "a pair"
        raise InputError(f"the input is {found}; this task takes {wanted}")
    texts = (value,) if isinstance(value, str) else value
    for text in texts:
        _check_text(text)
    encoded = backbone.tokenizer.encode(*texts, max_tokens=task.max_length if truncate else None)
    if len(encoded) > task.max_length:
        raise InputError(f"the input has {len(encoded)} tokens; this task takes {task.max_length} (or set truncate)")
    return encoded


def _check_text(text: str) -> None:
    if not text.strip():
        raise InputError("an input text is empty; every text must have at least one visible character")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        wrong = text[error.start]
        raise InputError(f"an input text has a lone surrogate {wrong!r} at character {error.start}") from None


@torch.inference_mode()
def forward(backbone: Backbone, rows: Sequence[Row], *, record_gates: bool = False) -> list[RowOutput]:
    """Outputs of `rows` in the order given; each is the same whoever shares the batch."""
    order = sorted(range(len(rows)), key=lambda index: rows[index].order)
    sorted_rows = [rows[index] for index in order]
    packed = backbone.pack([row.encoded for row in sorted_rows])
    slices = list(_slices(backbone, packed, sorted_rows, record_gates))
    hidden = backbone.model(packed, Mixture(backbone, slices))
    outputs = _outputs(backbone, packed, sorted_rows, slices, hidden)
    gates = [_row_gates(one, number) for one in slices for number in range(one.last - one.first)]
    results = {place: RowOutput(outputs[k], gates[k]) for k, place in enumerate(order)}
    return [results[index] for index in range(len(rows))]


def _slices(backbone: Backbone, packed: Packed, rows: Sequence[Row], record_gates: bool) -> Iterator[Slice]:
    first = 0
    for bank, group in groupby(rows, key=lambda row: row.body):
        slots = [row.slot for row in group]
        distinct = list(dict.fromkeys(slots))
        groups = [distinct.index(slot) for slot in slots]
        parts, tensors = ((), {}) if bank is None else (bank.parts, bank.gather(distinct))
        yield create_slice(backbone, packed, first, groups, parts, tensors, record_gates=record_gates)
        first += len(slots)


def _row_gates(one: Slice, row: int) -> dict[str, list[float]] | None:
    gates = one.context.gates
    return {label: [float(layer[row]) for layer in layers] for label, layers in gates.items()} if gates else None


def _outputs(
    backbone: Backbone, packed: Packed, rows: Sequence[Row], slices: Sequence[Slice], hidden: Tensor
) -> dict[int, Tensor]:
    outputs: dict[int, Tensor] = {}
    pooled = Pooled(backbone, packed, slices, hidden)
    for key, members in _by_head(rows).items():
        index = torch.tensor(members, device=hidden.device)
        if key is None:
            logits = pooled("first").index_select(0, index).float()
        else:
            bank, slot = key
            spec = head_spec(bank)
            tensors: Tensors = {name.removeprefix("head."): t[0] for name, t in bank.gather([slot]).items()}
            logits = head.apply(spec, tensors, pooled(spec.pooling).index_select(0, index))
        outputs.update(zip(members, logits.cpu().unbind(), strict=True))
    return outputs


def _by_head(rows: Sequence[Row]) -> dict[tuple[Bank, int] | None, list[int]]:
    heads: dict[tuple[Bank, int] | None, list[int]] = {}
    for number, row in enumerate(rows):
        key = None if row.resident is None else (row.resident.head, row.resident.head_slot)
        heads.setdefault(key, []).append(number)
    return heads


class Pooled:
    """One vector a row of a batch, [rows, hidden], computed once for each kind of pooling that some head asks for."""

    def __init__(self, backbone: Backbone, packed: Packed, slices: Sequence[Slice], hidden: Tensor) -> None:
        self._backbone, self._packed, self._slices, self._hidden = backbone, packed, slices, hidden
        self._known: dict[str, Tensor] = {}

    def __call__(self, pooling: str) -> Tensor:
        if pooling not in self._known:
            self._known[pooling] = getattr(self, f"_{pooling}")()
        return self._known[pooling]

    def _first(self) -> Tensor:
        return self._hidden.index_select(0, self._packed.first_tokens)

    def _mean(self) -> Tensor:
        lengths = torch.tensor(self._packed.lengths, device=self._hidden.device)
        return torch.segment_reduce(self._hidden.float(), "mean", lengths=lengths, axis=0)

    def _pooler(self) -> Tensor:
        pooler = self._backbone.model.pooler
        assert pooler is not None, "artifacts that need a pooler are refused where there is none"
        scores = pooler(self("first"))
        biases = [(one, one.pooler_bias) for one in self._slices]
        for one, bias in biases:
            if bias is not None:
                scores[one.first : one.last] += bias
        return torch.tanh(scores)
