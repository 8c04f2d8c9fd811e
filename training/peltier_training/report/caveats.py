"""Warnings about a training run, each a sentence with the next step, and the best constant answer, to compare with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from peltier_adapters.errors import and_more
from peltier_adapters.spec.maps import Spec
from peltier_adapters.spec.tasks import TaskSpec, TaskType
from peltier_client.quality.metrics import match_answers

from peltier_training.config.run import LOWER_IS_BETTER
from peltier_training.data.gold import entity_labels
from peltier_training.evaluate import metrics
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.evaluate.metrics import Array

_PERFECT = {"chrf": 100.0, "bleu": 100.0}  # every other score that rises has 1.0
_MAX_NAMES = 5
_MAX_NAME_LEN = 40
_MAX_CHANCE_ERRORS = 1.0  # standard errors of accuracy that count as chance
_MIN_CONSTANT_RATIO = 0.95  # of squared error to that of the mean: no better than constant


class Majority(Spec):
    """The same `answer` to every validation row: the most frequent label or set of labels, the mean of a regression, or
    no answer to a question. `metric` compares it with other answers; `share` is the share of rows with this label, None
    for a mean."""

    answer: str
    share: float | None
    metric: str
    metrics: dict[str, float]

    @classmethod
    def create(cls, evaluation: Evaluation, task: TaskSpec) -> "Majority | None":
        """The constant answer for the rows of `evaluation`; None for texts."""
        match task.type:
            case "classification":
                return cls._of_classes(np.array(evaluation.gold), task.labels)
            case "multilabel":
                return cls._of_sets(np.array(evaluation.gold), task.labels)
            case "regression":
                return cls._of_numbers(np.array(evaluation.gold, dtype=float))
            case "span":
                return cls._of_nothing(evaluation.gold)
        return None

    @classmethod
    def _of_nothing(cls, gold: Sequence[Sequence[str]]) -> "Majority | None":
        """No answer to every question, if it is ever right."""
        if all(gold):
            return None
        (found, _), share = match_answers(gold, [""] * len(gold)), sum(not own for own in gold) / len(gold)
        return cls(answer="no answer", share=share, metric="exact_match", metrics=found)

    @classmethod
    def _of_classes(cls, gold: Array, labels: Sequence[str]) -> "Majority":
        values, counts = np.unique(gold, return_counts=True)
        best = int(values[counts.argmax()])
        found = metrics.classification(np.full_like(gold, best), gold, len(labels))
        return cls(answer=labels[best], share=float(counts.max() / len(gold)), metric="accuracy", metrics=found)

    @classmethod
    def _of_sets(cls, gold: Array, labels: Sequence[str]) -> "Majority":
        values, counts = np.unique(gold, axis=0, return_counts=True)
        best = values[counts.argmax()]
        logits = np.tile(np.where(best, 1.0, -1.0), (len(gold), 1))
        answer = ", ".join(label for label, wanted in zip(labels, best, strict=True) if wanted) or "no label"
        return cls(
            answer=answer,
            share=float(counts.max() / len(gold)),
            metric="exact_match",
            metrics=metrics.compute("multilabel", logits, gold),
        )

    @classmethod
    def _of_numbers(cls, gold: Array) -> "Majority":
        mean = float(gold.mean())
        return cls(
            answer=f"{mean:.4g}", share=None, metric="mse", metrics=metrics.regression(np.full_like(gold, mean), gold)
        )


@dataclass(frozen=True)
class Evidence:
    """The inputs of warnings: the final `evaluation`, the best constant answer `majority`, the `history` of the metric
    that chooses the epoch, one value per validation, and whether training ended because it stopped improving."""

    task_type: TaskType
    labels: Sequence[str]
    metric: str
    history: Sequence[float]
    evaluation: Evaluation
    majority: Majority | None
    has_converged: bool = False


def find_caveats(evidence: Evidence) -> tuple[str, ...]:
    """All warnings that apply, the most serious first."""
    return tuple(
        caveat
        for caveat in (_constant(evidence), _unmoved(evidence), _unanswered(evidence), _unfinished(evidence))
        if caveat is not None
    )


def _unfinished(evidence: Evidence) -> str | None:
    """The last of several validations is the best, so training longer may improve the metric."""
    history, metric = evidence.history, evidence.metric
    falls = metric in LOWER_IS_BETTER
    if evidence.has_converged or len(history) < 2 or (not falls and history[-1] >= _PERFECT.get(metric, 1.0)):
        return None
    best = min(history) if falls else max(history)
    if history.index(best) < len(history) - 1:
        return None
    return (
        f"the last of {len(history)} validations is the best by {metric} ({best:.4g}): training may not have "
        "converged; train for longer (--epochs)."
    )


def _unmoved(evidence: Evidence) -> str | None:
    """The metric did not choose the epoch, because it never had a value that says something, or never another one."""
    history, metric = evidence.history, evidence.metric
    falls = metric in LOWER_IS_BETTER
    if not history or (min(history) <= 0 if falls else max(history) >= _PERFECT.get(metric, 1.0)):
        return None
    times = f"{len(history)} validations" if len(history) > 1 else "the only validation"
    if not falls and not max(history) > 0:
        found = f"the {metric}, which chooses the epoch, was never above 0 in {times}"
    elif len({*history}) == 1 < len(history):
        found = f"the {metric}, which chooses the epoch, was {history[0]:.4g} in all of {times}"
    else:
        return None
    instead = "; the lowest loss chose among equal ones" if len(history) > 1 else ""
    return f"{found}{instead}. Train for longer (--epochs), raise --learning-rate, or choose by another --metric."


def _unanswered(evidence: Evidence) -> str | None:
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
    if task_type == "token-classification":
        return {entity.label for entities in answers for entity in entities}
    values = np.array(answers)
    places = np.flatnonzero(values.any(0)) if task_type == "multilabel" else np.unique(values)
    return {labels[int(place)] for place in places if place >= 0}


def _short(name: str) -> str:
    return repr(name if len(name) <= _MAX_NAME_LEN else f"{name[: _MAX_NAME_LEN - 1]}…")
