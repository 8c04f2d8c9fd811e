"""Precision, recall and F1 of each label."""

from collections import Counter
from collections.abc import Sequence

from peltier_adapters.spec.maps import Spec

from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.report.answers import Confusion, LabelCounts


class LabelScores(Spec):
    """Precision, recall and F1 of one label. `rows` are its validation rows, or its entities in them. Precision is None
    for a label that was never predicted, recall for one without rows, and F1 if both are None."""

    label: str
    rows: int
    precision: float | None
    recall: float | None
    f1: float | None

    @classmethod
    def of_confusion(cls, confusion: Confusion) -> "tuple[LabelScores, ...]":
        """The scores of all labels of a classification."""
        answered = [sum(column) for column in zip(*confusion.matrix, strict=True)]
        return tuple(
            cls.of_counts(label, row[place], answered[place], sum(row) + confusion.unknown[place])
            for place, (label, row) in enumerate(zip(confusion.labels, confusion.matrix, strict=True))
        )

    @classmethod
    def of_label_counts(cls, counts: Sequence[LabelCounts]) -> "tuple[LabelScores, ...]":
        """The scores of all labels of a multilabel task."""
        return tuple(
            cls.of_counts(own.label, own.right, own.right + own.extra, own.right + own.missed) for own in counts
        )

    @classmethod
    def of_entities(cls, evaluation: Evaluation, labels: Sequence[str]) -> "tuple[LabelScores, ...]":
        """The scores of whole entities by label."""
        wanted, given, right = Counter[str](), Counter[str](), Counter[str]()
        for gold, found in zip(evaluation.gold, evaluation.found, strict=True):
            wanted.update(entity.label for entity in gold)
            given.update(entity.label for entity in found)
            right.update(entity.label for entity in {*gold} & {*found})
        return tuple(cls.of_counts(label, right[label], given[label], wanted[label]) for label in labels)

    @classmethod
    def of_counts(cls, label: str, right: int, answered: int, rows: int) -> "LabelScores":
        """The scores of a label with `rows` rows, `answered` answers and `right` correct answers."""
        return cls(
            label=label,
            rows=rows,
            precision=right / answered if answered else None,
            recall=right / rows if rows else None,
            f1=2 * right / (answered + rows) if answered + rows else None,
        )
