"""The best constant answer, the baseline for every training run."""

from collections.abc import Sequence

import numpy as np
from peltier_adapters.spec.maps import Spec
from peltier_adapters.spec.tasks import TaskSpec
from peltier_client.bulk.quality import match_answers

from peltier_training.evaluate import metrics
from peltier_training.evaluate.embedding_metrics import Array
from peltier_training.evaluate.evaluation import Evaluation


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
