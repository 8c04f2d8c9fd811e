"""Warnings about a training run, each a sentence with the next step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from peltier_adapters.errors import and_more
from peltier_adapters.spec.tasks import TaskType

from peltier_training.data.tags import entity_labels
from peltier_training.evaluate import metrics
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.evaluate.majority import Majority

_PERFECT = {"bleu": 100.0}  # every other score that rises has 1.0
_MAX_NAMES = 5
_MAX_NAME_LEN = 40
_MAX_CHANCE_ERRORS = 1.0  # standard errors of accuracy that count as chance
_MIN_CONSTANT_RATIO = 0.95  # of squared error to that of the mean: no better than constant


@dataclass(frozen=True)
class Evidence:
    """The inputs of warnings: the final `evaluation`, the best constant answer `majority`, and the `history` of the
    metric that chooses the epoch, one value per validation."""

    task_type: TaskType
    labels: Sequence[str]
    metric: str
    history: Sequence[float]
    evaluation: Evaluation
    majority: Majority | None


def find_caveats(evidence: Evidence) -> tuple[str, ...]:
    """All warnings that apply, the most serious first."""
    return tuple(
        caveat for caveat in (_constant(evidence), _unanswered(evidence), _unfinished(evidence)) if caveat is not None
    )


def _unfinished(evidence: Evidence) -> str | None:
    """The last of several validations is the best, so training longer may improve the metric."""
    history, metric = evidence.history, evidence.metric
    falls = metric in metrics.LOWER_IS_BETTER
    if len(history) < 2 or (not falls and history[-1] >= _PERFECT.get(metric, 1.0)):
        return None
    best = min(history) if falls else max(history)
    if history.index(best) < len(history) - 1:
        return None
    return (
        f"the last of {len(history)} validations is the best by {metric} ({best:.4g}): training may not have "
        "converged; train for longer (--epochs)."
    )


def _unanswered(evidence: Evidence) -> str | None:
    """Labels of validation rows that no answer has."""
    if evidence.task_type not in ("classification", "multilabel", "token-classification"):
        return None
    labels, answers = _labels(evidence), (evidence.evaluation.gold, evidence.evaluation.found)
    wanted, given = (_used(evidence.task_type, labels, own) for own in answers)
    missing = [label for label in labels if label in wanted - given]
    if not missing:
        return None
    named = ", ".join(_short(label) for label in missing[:_MAX_NAMES])
    more = f" {and_more(len(missing) - _MAX_NAMES)}" if len(missing) > _MAX_NAMES else ""
    verb = "is" if len(missing) == 1 else "are"
    return (
        f"{len(missing)} of {len(labels)} labels {verb} never predicted on the validation rows "
        f"({named}{more}); train for longer (--epochs), raise --learning-rate, or add rows of them."
    )


def _constant(evidence: Evidence) -> str | None:
    """The answers are no better than the best constant answer."""
    majority = evidence.majority
    if majority is None or not _is_poor(evidence, majority):
        return None
    metric, always = majority.metric, _short(majority.answer)
    value, constant = evidence.evaluation.metrics[metric], majority.metrics[metric]
    if metric != "mse" and value > constant:
        rows = len(evidence.evaluation.gold)
        return (
            f"the {metric} of {value:.4g} is within chance of answering {always} to every row ({constant:.4g}) on "
            f"{rows} rows; validate on more rows, or train for longer (--epochs)."
        )
    return (
        f"the {metric} of {value:.4g} is no better than answering {always} to every row ({constant:.4g}); raise "
        "--learning-rate or --epochs, and check that texts and labels belong together."
    )


def _is_poor(evidence: Evidence, majority: Majority) -> bool:
    """Whether the answers are within chance of the constant answer on this number of rows."""
    value, constant = evidence.evaluation.metrics[majority.metric], majority.metrics[majority.metric]
    if majority.metric == "mse":
        return value >= _MIN_CONSTANT_RATIO * constant > 0
    chance = (constant * (1 - constant) / len(evidence.evaluation.gold)) ** 0.5
    return value <= constant + _MAX_CHANCE_ERRORS * chance and value < 1


def _labels(evidence: Evidence) -> Sequence[str]:
    return entity_labels(evidence.labels) if evidence.task_type == "token-classification" else evidence.labels


def _used(task_type: TaskType, labels: Sequence[str], answers: Sequence[Any]) -> set[str]:
    """The labels in `answers`."""
    if task_type == "token-classification":
        return {entity.label for entities in answers for entity in entities}
    values = np.array(answers)
    places = np.flatnonzero(values.any(0)) if task_type == "multilabel" else np.unique(values)
    return {labels[int(place)] for place in places if place >= 0}


def _short(name: str) -> str:
    return repr(name if len(name) <= _MAX_NAME_LEN else f"{name[: _MAX_NAME_LEN - 1]}…")
