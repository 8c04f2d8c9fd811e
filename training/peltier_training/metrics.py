"""Metrics by task type, computed by scikit-learn and scipy."""

from typing import Any

import numpy as np
from scipy import stats
from sklearn import metrics as sk

from peltier_training.labels import TaskType

BEST: dict[TaskType, str] = {"classification": "accuracy", "multilabel": "f1_micro", "regression": "pearson"}
NAMES: dict[TaskType, tuple[str, ...]] = {
    "classification": ("accuracy", "f1", "f1_macro", "matthews"),
    "multilabel": ("f1_micro", "f1_macro", "exact_match"),
    "regression": ("pearson", "spearman", "mse"),
}
LOWER_IS_BETTER = frozenset({"mse"})
Array = np.ndarray[Any, Any]


def compute(kind: TaskType, logits: Array, targets: Array) -> dict[str, float]:
    """All metrics of a task type; `logits` [rows, labels], targets as `Labels.targets` gives them."""
    scores = {"classification": _classification, "multilabel": _multilabel, "regression": _regression}
    return {name: float(value) for name, value in scores[kind](logits, targets).items()}


def _classification(logits: Array, targets: Array) -> dict[str, float]:
    found = logits.argmax(-1)
    values = {
        "accuracy": sk.accuracy_score(targets, found),
        "f1_macro": sk.f1_score(targets, found, average="macro", zero_division=0),
        "matthews": sk.matthews_corrcoef(targets, found),
    }
    if logits.shape[-1] == 2:
        values["f1"] = sk.f1_score(targets, found, zero_division=0)
    return values


def _multilabel(logits: Array, targets: Array) -> dict[str, float]:
    found = logits > 0
    return {
        "f1_micro": sk.f1_score(targets, found, average="micro", zero_division=0),
        "f1_macro": sk.f1_score(targets, found, average="macro", zero_division=0),
        "exact_match": sk.accuracy_score(targets, found),
    }


def _regression(logits: Array, targets: Array) -> dict[str, float]:
    found = logits.reshape(-1)
    errors = {"mse": sk.mean_squared_error(targets, found)}
    if np.ptp(found) == 0 or np.ptp(targets) == 0:  # correlation with a constant is undefined; it orders nothing
        return {"pearson": 0.0, "spearman": 0.0, **errors}
    pearson, spearman = stats.pearsonr(found, targets).statistic, stats.spearmanr(found, targets).statistic
    return {"pearson": pearson, "spearman": spearman, **errors}
