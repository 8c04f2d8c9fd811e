"""Computes one forward pass for rows of any tenants, tasks and methods."""

from collections.abc import Sequence
from typing import Protocol

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.batch import choice
from peltier_adapters.batch.row import Row, RowOutput
from peltier_adapters.batch.runner import Runner


class Graphs(Protocol):
    """Forward passes of an encoder that a GPU replays (`gpu/graphs.py`)."""

    def compute(self, rows: Sequence[Row]) -> Sequence[Tensor] | None:
        """The logits of each row; None if there is no graph for `rows`."""


@torch.inference_mode()
def forward(
    backbone: Backbone,
    rows: Sequence[Row],
    *,
    record_gates: bool = False,
    graphs: Graphs | None = None,
    runner: Runner | None = None,
) -> list[RowOutput]:
    """One output per row, in the order of `rows`. The output of a row does not depend on the other rows. The `runner`
    is that of the backbone; without it, it is chosen here.

    With an encoder, an output has the logits of the task's head, for each token if the head reads tokens; with T5, the
    log-likelihood of each label string.
    """
    order = sorted(range(len(rows)), key=lambda index: rows[index].order)
    sorted_rows = [rows[index] for index in order]
    replayed = None if graphs is None or record_gates else graphs.compute(sorted_rows)
    if replayed is not None:
        sorted_outputs = [RowOutput(logits) for logits in replayed]
    else:
        runner = runner or choice.choose_runner(backbone)
        sorted_outputs = runner.run(sorted_rows, record_gates=record_gates)
    results = dict(zip(order, sorted_outputs, strict=True))
    return [results[index] for index in range(len(rows))]
