"""Converts the output of a ranking head to a score."""

import math
from typing import Any

from torch import Tensor


def ranking_answer(output: Tensor, *, raw_scores: bool = False) -> dict[str, Any]:
    """The `score` of a document for its query, from the output [1] of a row: its sigmoid, between 0 and 1, or with
    `raw_scores` the output itself. Scores of one query compare; their scale depends on the training loss."""
    value = float(output[0])
    return {"score": value if raw_scores else _sigmoid(value)}


def _sigmoid(value: float) -> float:
    # exp of a large positive number would overflow.
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))
