"""One forward of rows of any tenants, tasks and methods."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Packed
from torch import Tensor

from peltier_adapters import scoring
from peltier_adapters.heads import read_heads
from peltier_adapters.mixture import Mixture, Slice
from peltier_adapters.row import Row, RowOutput, create_slices, row_gates


class Graphs(Protocol):
    """Forwards of an encoder that a GPU replays (`graphs/`)."""

    def pooled(self, rows: Sequence[Row]) -> Mapping[str, Tensor] | None:
        """A vector a row for each kind of pooling; None where `rows` are computed as without graphs."""


@torch.inference_mode()
def forward(
    backbone: Backbone, rows: Sequence[Row], *, record_gates: bool = False, graphs: Graphs | None = None
) -> list[RowOutput]:
    """Outputs of `rows` in the order given; each is the same whoever shares the batch.

    An encoder gives what the task's head says; T5 the log-likelihood of each of the row's label strings.
    """
    order = sorted(range(len(rows)), key=lambda index: rows[index].order)
    sorted_rows = [rows[index] for index in order]
    pooled = None if graphs is None or record_gates else graphs.pooled(sorted_rows)
    if pooled is None:
        sorted_outputs = _compute(backbone, sorted_rows, record_gates=record_gates)
    else:
        logits = read_heads(sorted_rows, pooled.__getitem__, backbone.device)
        sorted_outputs = [RowOutput(own) for own in logits]
    results = dict(zip(order, sorted_outputs, strict=True))
    return [results[index] for index in range(len(rows))]


def _compute(backbone: Backbone, sorted_rows: Sequence[Row], *, record_gates: bool) -> list[RowOutput]:
    packed = backbone.pack([row.prompted for row in sorted_rows])
    slices = list(create_slices(backbone, packed, sorted_rows, record_gates=record_gates))
    mixture = Mixture(backbone, slices)
    outputs: Sequence[Tensor]
    if backbone.config.generates:
        outputs = scoring.score(backbone, packed, sorted_rows, mixture)
    else:
        pooled = Pooled(backbone, packed, slices, backbone.bert(packed, mixture))
        outputs = read_heads(sorted_rows, pooled, backbone.device)
    gates = [row_gates(one, number) for one in slices for number in range(one.last - one.first)]
    return [RowOutput(logits, own) for logits, own in zip(outputs, gates, strict=True)]


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
        pooler = self._backbone.bert.pooler
        assert pooler is not None, "artifacts that need a pooler are refused where there is none"
        scores = pooler(self("first"))
        biases = [(one, one.pooler_bias) for one in self._slices]
        for one, bias in biases:
            if bias is not None:
                scores[one.first : one.last] += bias
        return torch.tanh(scores)
