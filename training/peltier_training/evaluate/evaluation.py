"""What labelled data says of an adapter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from peltier_adapters.artifact.manifest import Input
from peltier_adapters.batch.row import RowOutput
from torch import Tensor

Gates = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class Evaluation:
    """Metrics of the task's type, and the answers that they judge: `found` for each of `inputs`, where `gold` is right.

    Answers are label positions for classification (-1 found: a text that is no label), 0 or 1 a label for multilabel,
    numbers for regression; for text2text `found` is a text and `gold` all its references. `gates` are UniPELT's, per
    part one value a layer (None: without that part), the mean over all rows; None where there are none or nobody asked.
    `scores` [rows, outputs] are what answers were chosen by: logits, or on T5 those of the target texts; None where a
    text was written.
    """

    metrics: Mapping[str, float]
    inputs: Sequence[Input]
    gold: Sequence[Any]
    found: Sequence[Any]
    gates: Gates | None = None
    scores: Tensor | None = None


def mean_gates(outputs: Sequence[RowOutput]) -> Gates | None:
    """The mean over rows of each part's gate in each layer."""
    rows = [output.gates for output in outputs if output.gates is not None]
    if not rows:
        return None
    return {part: [_mean(layer) for layer in zip(*(row[part] for row in rows), strict=True)] for part in rows[0]}


def _mean(gates: Sequence[float | None]) -> float | None:
    values = [gate for gate in gates if gate is not None]
    return float(np.mean(values)) if values else None
