"""Computes one forward pass for rows of any tenants, tasks and methods."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Packed
from torch import Tensor

from peltier_adapters.batch import scoring
from peltier_adapters.batch.adaptation import BatchAdaptation
from peltier_adapters.batch.heads import read_heads
from peltier_adapters.batch.row import Row, RowOutput, adapt, row_gates


class Graphs(Protocol):
    """Forward passes of an encoder that a GPU replays (`graphs/`)."""

    def pooled(self, rows: Sequence[Row]) -> Mapping[str, Tensor] | None:
        """One vector per row for each kind of pooling; None if there is no graph for `rows`."""


@torch.inference_mode()
def forward(
    backbone: Backbone, rows: Sequence[Row], *, record_gates: bool = False, graphs: Graphs | None = None
) -> list[RowOutput]:
    """One output per row, in the order of `rows`. The output of a row does not depend on the other rows.

    With an encoder, an output has the logits of the task's head; with T5, the log-likelihood of each label string.
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
    adaptation = adapt(backbone, sorted_rows, packed.lengths, record_gates=record_gates)
    outputs: Sequence[Tensor]
    if backbone.config.generates:
        outputs = scoring.score(backbone, packed, sorted_rows, adaptation)
    else:
        pooled = Pooled(backbone, packed, adaptation, backbone.bert(packed, adaptation))
        outputs = read_heads(sorted_rows, pooled, backbone.device)
    num_layers = backbone.config.num_layers
    gates = [row_gates(group, row, num_layers) for group in adaptation.groups for row in range(group.rows)]
    return [RowOutput(logits, own) for logits, own in zip(outputs, gates, strict=True)]


class Pooled:
    """One vector per row of a batch, [rows, hidden], computed once for each kind of pooling that a head of the batch
    uses."""

    def __init__(self, backbone: Backbone, packed: Packed, adaptation: BatchAdaptation, hidden: Tensor) -> None:
        self._backbone, self._packed, self._adaptation, self._hidden = backbone, packed, adaptation, hidden
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
        return torch.tanh(self._adaptation.pool(pooler(self("first"))))
