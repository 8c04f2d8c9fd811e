"""Computes one forward pass for rows of any tenants, tasks and methods."""

from collections.abc import Sequence
from typing import Protocol

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.modernbert.modernbert import ModernBert
from peltier_backbone.text.packing import Packed
from torch import Tensor

from peltier_adapters.batch import scoring
from peltier_adapters.batch.adaptation import BatchAdaptation
from peltier_adapters.batch.heads import read_heads
from peltier_adapters.batch.row import Row, RowOutput, adapt, group_rows, row_gates
from peltier_adapters.batch.sharing import Batch, Stage, plan_stages, run_stages
from peltier_adapters.ops import choice
from peltier_adapters.ops.backend import AdapterGroup


class Graphs(Protocol):
    """Forward passes of an encoder that a GPU replays (`graphs/`)."""

    def compute(self, rows: Sequence[Row]) -> Sequence[Tensor] | None:
        """The logits of each row; None if there is no graph for `rows`."""


@torch.inference_mode()
def forward(
    backbone: Backbone, rows: Sequence[Row], *, record_gates: bool = False, graphs: Graphs | None = None
) -> list[RowOutput]:
    """One output per row, in the order of `rows`. The output of a row does not depend on the other rows.

    With an encoder, an output has the logits of the task's head, for each token if the head reads tokens; with T5, the
    log-likelihood of each label string.
    """
    order = sorted(range(len(rows)), key=lambda index: rows[index].order)
    sorted_rows = [rows[index] for index in order]
    replayed = None if graphs is None or record_gates else graphs.compute(sorted_rows)
    if replayed is not None:
        sorted_outputs = [RowOutput(logits) for logits in replayed]
    else:
        compute = _compute_frame if has_frames(backbone) else _compute
        sorted_outputs = compute(backbone, sorted_rows, record_gates=record_gates)
    results = dict(zip(order, sorted_outputs, strict=True))
    return [results[index] for index in range(len(rows))]


def _compute(backbone: Backbone, sorted_rows: Sequence[Row], *, record_gates: bool) -> list[RowOutput]:
    packed = backbone.pack([row.prompted for row in sorted_rows])
    adaptation = adapt(backbone, sorted_rows, packed.lengths, record_gates=record_gates)
    outputs: Sequence[Tensor]
    if backbone.config.generates:
        outputs = scoring.score(backbone, packed, sorted_rows, adaptation)
    else:
        batch = Batch(sorted_rows, packed, adaptation)
        stages = _plan(backbone, sorted_rows, record_gates=record_gates)
        hidden = run_stages(backbone, batch, stages) if stages else backbone.bert(packed, adaptation)
        pooled = Pooled(backbone, packed, adaptation, hidden)
        outputs = read_heads(sorted_rows, pooled, backbone.device)
    return _with_gates(outputs, adaptation.groups, backbone.config.num_layers)


def _plan(backbone: Backbone, rows: Sequence[Row], *, record_gates: bool) -> list[Stage]:
    """How rows of one text share work; empty where none is shared: on T5, in frames, and while gates are recorded."""
    if backbone.config.generates or record_gates or has_frames(backbone):
        return []
    return plan_stages(rows, backbone.config.num_layers)


def computed_share(backbone: Backbone, rows: Sequence[Row], *, record_gates: bool = False) -> float:
    """The part of the work in the frozen blocks that `forward` does for `rows`, of what each row alone would take."""
    stages = _plan(backbone, sorted(rows, key=lambda row: row.order), record_gates=record_gates)
    if not stages:
        return 1.0
    done = sum(len(stage.layers) * stage.num_tokens for stage in stages)
    return done / (backbone.config.num_layers * sum(row.num_inputs for row in rows))


def has_frames(backbone: Backbone) -> bool:
    """Whether batches of `backbone` are computed as frames: Triton's kernels run its adapters, and it has no local
    layers, whose windows depend on the lengths of rows."""
    if isinstance(backbone.model, ModernBert):
        return False
    return choice.choose_backend(backbone.device, backbone.dtype).name == "triton"


def _compute_frame(backbone: Backbone, sorted_rows: Sequence[Row], *, record_gates: bool) -> list[RowOutput]:
    groups = group_rows(sorted_rows, record_gates=record_gates)
    run = _score_frame if backbone.config.generates else _run_frame
    return _with_gates(run(backbone, sorted_rows, groups), groups, backbone.config.num_layers)


def _run_frame(backbone: Backbone, rows: Sequence[Row], groups: Sequence[AdapterGroup]) -> list[Tensor]:
    from peltier_adapters.batch.frame import Frame  # needs Triton
    from peltier_adapters.batch.shape import Shape

    frame = Frame(backbone, Shape.of(rows))
    frame.load(rows)
    frame.run(groups)
    return frame.read(rows)


def _score_frame(backbone: Backbone, rows: Sequence[Row], groups: Sequence[AdapterGroup]) -> list[Tensor]:
    from peltier_adapters.batch.t5_frame import read_trees  # needs Triton

    trees = scoring.list_trees(rows)
    logits, steps = read_trees(backbone, rows, groups, trees, scoring.list_steps(trees))
    return scoring.sum_labels(trees, logits, steps)


def _with_gates(outputs: Sequence[Tensor], groups: Sequence[AdapterGroup], num_layers: int) -> list[RowOutput]:
    gates = [row_gates(group, row, num_layers) for group in groups for row in range(group.rows)]
    return [RowOutput(logits, own) for logits, own in zip(outputs, gates, strict=True)]


class Pooled:
    """One vector per row of a batch, [rows, hidden], computed once for each kind of pooling that a head of the batch
    uses; with `tokens` the states of all tokens, [tokens, hidden]."""

    def __init__(self, backbone: Backbone, packed: Packed, adaptation: BatchAdaptation, hidden: Tensor) -> None:
        self._backbone, self._packed, self._adaptation, self._hidden = backbone, packed, adaptation, hidden
        self._known: dict[str, Tensor] = {}

    def __call__(self, pooling: str) -> Tensor:
        if pooling not in self._known:
            self._known[pooling] = getattr(self, f"_{pooling}")()
        return self._known[pooling]

    def _first(self) -> Tensor:
        return self._hidden.index_select(0, self._packed.first_tokens)

    def _tokens(self) -> Tensor:
        return self._hidden

    def _mean(self) -> Tensor:
        return self._reduce("mean")

    def _max(self) -> Tensor:
        return self._reduce("max")

    def _reduce(self, how: str) -> Tensor:
        lengths = torch.tensor(self._packed.lengths, device=self._hidden.device)
        return torch.segment_reduce(self._hidden.float(), how, lengths=lengths, axis=0)

    def _pooler(self) -> Tensor:
        pooler = self._backbone.bert.pooler
        assert pooler is not None, "artifacts that need a pooler are refused where there is none"
        return torch.tanh(self._adaptation.pool(pooler(self("first"))))
