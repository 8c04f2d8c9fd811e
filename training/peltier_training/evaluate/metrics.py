"""Metrics by task type, from scikit-learn and scipy; `text_metrics` has those of texts."""

from typing import Any

import numpy as np
from peltier_adapters.spec.tasks import TaskType
from sklearn import metrics as sk

from peltier_training.config.metric_names import BEST, LOWER_IS_BETTER, NAMES
from peltier_training.evaluate.correlation import correlations
from peltier_training.evaluate.embedding_metrics import embedding
from peltier_training.evaluate.ranking_metrics import ranking

__all__ = ["BEST", "LOWER_IS_BETTER", "NAMES", "classification", "compute", "regression"]

Array = np.ndarray[Any, Any]


def compute(kind: TaskType, logits: Array, targets: Array) -> dict[str, float]:
    """All metrics of a task type; `logits` [rows, labels], targets as `Labels.targets` gives them."""
    match kind:
        case "classification":
            return classification(logits.argmax(-1), targets, logits.shape[-1])
        case "multilabel":
            return _floats(_multilabel(logits, targets))
        case "regression":
            return regression(logits.reshape(-1), targets)
        case "embedding":
            return embedding(logits, targets)
        case "ranking":
            return ranking(logits.reshape(-1), targets)
    raise AssertionError("texts have metrics of their own")


def classification(found: Array, targets: Array, num_labels: int) -> dict[str, float]:
    """The metrics of label positions [rows]; a found -1 is a wrong answer that is no label."""
    present = np.setdiff1d(np.union1d(targets, found), [-1])
    values = {
        "accuracy": sk.accuracy_score(targets, found),
        "f1_macro": sk.f1_score(targets, found, labels=present, average="macro", zero_division=0),
        # scikit-learn warns if both sides have only one label.
        "matthews": sk.matthews_corrcoef(targets, found) if np.ptp([targets, found]) else 0.0,
    }
    if num_labels == 2:
        values["f1"] = sk.f1_score(targets == 1, found == 1, zero_division=0)
    return _floats(values)


def _multilabel(logits: Array, targets: Array) -> dict[str, Any]:
    # F1 is computed per label, because scikit-learn would take a single column for two classes.
    wanted, found = targets.astype(int), (logits > 0).astype(int)
    by_label = [sk.f1_score(*columns, zero_division=0) for columns in zip(wanted.T, found.T, strict=True)]
    return {
        "f1_micro": sk.f1_score(wanted.ravel(), found.ravel(), zero_division=0),
        "f1_macro": np.mean(by_label),
        "exact_match": (found == wanted).all(1).mean(),
    }


def regression(found: Array, targets: Array) -> dict[str, float]:
    """The metrics of numbers [rows]."""
    return correlations(found, targets) | {"mse": float(sk.mean_squared_error(targets, found))}


def _floats(values: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}
