"""The outputs of rows by the server's own forward, and the result of an evaluation on labelled data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from peltier_adapters.artifact.manifest import TaskInput
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row, RowOutput
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_training.errors import NotFiniteError

BATCH_ROWS = 32
# As many as 32 rows of 512 tokens. A scored token also has logits and their softmax for the whole vocabulary.
BATCH_TOKENS = 16_384
_TOKEN_BYTES, _SCORED_BYTES = 64 * 1024, 2 * 4

MeanGates = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class Evaluation:
    """Metrics of the task's type, and for each of `inputs` the answer `found` and the right answer `gold`.

    Answers are label positions for classification (-1 for a text that is no label), 0 or 1 for each label of a
    multilabel task, and numbers for regression and ranking; for text2text `found` is a text and `gold` all its
    references; for a span `found` is a `SpanAnswer` and `gold` the texts of all right ones; for a token classification
    both are tuples of `GoldEntity`; for an embedding they are the cosines and the scores of pairs, or the rank of each
    second text and 1. `gates` are UniPELT's mean gates over all rows, for each part one value per layer (None for a
    layer without that part), or None if there are none or they were not recorded. `scores` [rows, outputs] chose the
    answers: logits, or on T5 the scores of the target texts; None if texts were generated or tokens have answers.
    """

    metrics: Mapping[str, float]
    inputs: Sequence[TaskInput]
    gold: Sequence[Any]
    found: Sequence[Any]
    gates: MeanGates | None = None
    scores: Tensor | None = None


def batches(backbone: Backbone, rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """`rows` in their order, at most `BATCH_ROWS` at a time, of at most `BATCH_TOKENS` tokens unless a row alone has
    more. A token that is scored counts as so many as need its memory."""
    scored = 1 + backbone.config.vocab_size * _SCORED_BYTES / _TOKEN_BYTES
    first, tokens = 0, 0.0
    for place, row in enumerate(rows):
        own = len(row.encoded) + (0.0 if row.scored is None else scored * len(row.scored.ids))
        if place > first and (place - first == BATCH_ROWS or tokens + own > BATCH_TOKENS):
            yield rows[first:place]
            first, tokens = place, 0.0
        tokens += own
    if rows:
        yield rows[first:]


def run_rows(backbone: Backbone, rows: Sequence[Row], *, record_gates: bool = False) -> list[RowOutput]:
    """One output per row, batch by batch. Raises a `NotFiniteError` if an output is not finite."""
    found = [
        output for batch in batches(backbone, rows) for output in forward(backbone, batch, record_gates=record_gates)
    ]
    if not all(bool(output.logits.isfinite().all()) for output in found):
        raise NotFiniteError("the adapter's outputs are not finite numbers")
    return found


def mean_gates(outputs: Sequence[RowOutput]) -> MeanGates | None:
    """The mean over rows of each part's gate in each layer."""
    rows = [output.gates for output in outputs if output.gates is not None]
    if not rows:
        return None
    return {part: [_mean(layer) for layer in zip(*(row[part] for row in rows), strict=True)] for part in rows[0]}


def _mean(gates: Sequence[float | None]) -> float | None:
    values = [gate for gate in gates if gate is not None]
    return float(np.mean(values)) if values else None
