"""Converts logits to labels with scores, and to numbers."""

import math
from typing import Any

import torch
from torch import Tensor

from peltier_adapters.spec.tasks import TaskSpec

MULTILABEL_THRESHOLD = 0.5
# For so few labels a softmax in Python is faster than a call of torch, which also releases the GIL.
_FEW_LABELS = 16


def scores(task: TaskSpec, logits: Tensor) -> Tensor:
    """Probabilities [.., labels] for classification and tokens (softmax) and multilabel (sigmoid), [tokens, 2] over the
    tokens for a span; the logits for the other types.

    On T5 the logits are log-likelihoods of the task's targets, and the probabilities of all targets add up to 1.
    """
    if task.targets:
        return logits.softmax(-1)
    match task.type:
        case "classification" | "token-classification":
            return logits.softmax(-1)
        case "span":
            return logits.softmax(-2)
        case "multilabel":
            return logits.sigmoid()
        case "regression" | "text2text" | "embedding" | "ranking" | "sparse-embedding" | "multi-vector-embedding":
            return logits


def answer(task: TaskSpec, logits: Tensor, *, raw_scores: bool = False, top_k: int | None = None) -> dict[str, Any]:
    """The answer for the logits [labels] of one row, by the names of a prediction's fields: `label`, `score` and
    `scores` for classification, `labels` and `scores` for multilabel, `value` for regression.

    `scores` are in the label order of the task. With `raw_scores` they are logits instead of probabilities, with
    `top_k` those of the best labels only."""
    # For a few labels a list is faster than torch operations, which also release the GIL each time.
    values: list[float] = logits.tolist()
    top = max(values)
    best = values.index(top)
    if task.type == "regression":
        return {"value": float(task.targets[best]) if task.targets else values[0]}
    probabilities = _probabilities(task, logits, values, top)
    shown = values if raw_scores else probabilities
    table = dict(zip(task.labels, shown, strict=True))
    if top_k is not None:
        kept = torch.topk(logits, min(top_k, len(values))).indices.tolist()
        table = {task.labels[index]: shown[index] for index in sorted(kept)}
    if task.type == "multilabel":
        likely = zip(task.labels, probabilities, strict=True)
        return {"labels": [label for label, one in likely if one >= MULTILABEL_THRESHOLD], "scores": table}
    return {"label": task.labels[best], "score": shown[best], "scores": table}


def _probabilities(task: TaskSpec, logits: Tensor, values: list[float], top: float) -> list[float]:
    """`scores` of the logits of one row, which are also given as `values`, with `top` as the largest."""
    if task.type == "classification" and len(values) <= _FEW_LABELS:
        weights = [math.exp(value - top) for value in values]
        total = math.fsum(weights)
        return [weight / total for weight in weights]
    found: list[float] = scores(task, logits).tolist()
    return found


def ranking_answer(output: Tensor, *, raw_scores: bool = False) -> dict[str, Any]:
    """The `score` of a document for its query, from the output [1] of a row: its sigmoid, between 0 and 1, or with
    `raw_scores` the output itself. Scores of one query can be compared; their scale depends on the training
    loss."""
    value = float(output[0])
    return {"score": value if raw_scores else _sigmoid(value)}


def _sigmoid(value: float) -> float:
    # exp of a large positive number would overflow.
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))
