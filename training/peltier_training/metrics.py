"""Metrics by task type, computed by scikit-learn and scipy."""

import warnings
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
        # One label on both sides has nothing to correlate, and scikit-learn warns.
        "matthews": sk.matthews_corrcoef(targets, found) if np.ptp([targets, found]) else 0.0,
    }
    if logits.shape[-1] == 2:
        values["f1"] = sk.f1_score(targets, found, zero_division=0)
    return values


def _multilabel(logits: Array, targets: Array) -> dict[str, float]:
    # Each label is a yes-or-no question; scikit-learn would take a single column for two classes.
    wanted, found = targets.astype(int), (logits > 0).astype(int)
    by_label = [sk.f1_score(*columns, zero_division=0) for columns in zip(wanted.T, found.T, strict=True)]
    return {
        "f1_micro": sk.f1_score(wanted.ravel(), found.ravel(), zero_division=0),
        "f1_macro": np.mean(by_label),
        "exact_match": (found == wanted).all(1).mean(),
    }


def _regression(logits: Array, targets: Array) -> dict[str, float]:
    found = logits.reshape(-1)
    errors = {"mse": sk.mean_squared_error(targets, found)}
    if np.ptp(found) == 0 or np.ptp(targets) == 0:  # correlation with a constant is undefined; it orders nothing
        return {"pearson": 0.0, "spearman": 0.0, **errors}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)  # a first epoch's answers are nearly the mean
        pearson, spearman = stats.pearsonr(found, targets).statistic, stats.spearmanr(found, targets).statistic
    return {"pearson": pearson, "spearman": spearman, **errors}
