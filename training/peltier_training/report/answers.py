"""The answers on the validation set compared with the right ones, and the scores of each label."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from peltier_adapters.artifact.manifest import TaskInput
from peltier_adapters.spec.maps import Spec

from peltier_training.evaluate.evaluation import Evaluation

_MAX_POINTS = 1000
_MAX_SAMPLES = 8
_MAX_REFERENCES = 256  # as many as a server takes
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


class Confusion(Spec):
    """`matrix[i][j]` counts rows with label i and answer j; `unknown[i]` those whose answer is no label."""

    labels: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...]
    unknown: tuple[int, ...]

    @classmethod
    def create(cls, evaluation: Evaluation, labels: Sequence[str]) -> "Confusion":
        counts = np.zeros((len(labels), len(labels) + 1), int)
        np.add.at(counts, (evaluation.gold, evaluation.found), 1)  # -1, an answer that is no label, is the last column
        return cls(
            labels=tuple(labels),
            matrix=tuple(tuple(row[:-1]) for row in counts.tolist()),
            unknown=tuple(counts[:, -1].tolist()),
        )


class LabelCounts(Spec):
    """Counts of one label of a multilabel task: `right`, wrongly answered (`extra`), and `missed`."""

    label: str
    right: int
    extra: int
    missed: int

    @classmethod
    def create(cls, evaluation: Evaluation, labels: Sequence[str]) -> "tuple[LabelCounts, ...]":
        gold, found = (np.array(answers, dtype=bool) for answers in (evaluation.gold, evaluation.found))
        return tuple(
            cls(
                label=label,
                right=int((wanted & given).sum()),
                extra=int((~wanted & given).sum()),
                missed=int((wanted & ~given).sum()),
            )
            for label, wanted, given in zip(labels, gold.T, found.T, strict=True)
        )


class Residuals(Spec):
    """Answer minus label of a regression: mean, standard deviation and quantiles over all rows. `gold` and `found` are
    those of at most 1,000 evenly spaced rows."""

    mean: float
    sd: float
    quantiles: dict[str, float]
    rows: int
    gold: tuple[float, ...]
    found: tuple[float, ...]

    @classmethod
    def create(cls, evaluation: Evaluation) -> "Residuals":
        gold, found = (np.array(answers, dtype=float) for answers in (evaluation.gold, evaluation.found))
        residuals = found - gold
        places = _spread(len(gold), _MAX_POINTS)
        return cls(
            mean=residuals.mean(),
            sd=residuals.std(),
            quantiles={f"{share:g}": float(np.quantile(residuals, share)) for share in _QUANTILES},
            rows=len(gold),
            gold=tuple(gold[places].tolist()),
            found=tuple(found[places].tolist()),
        )


class Sample(Spec):
    """An input of a text2text task, its first references, and the generated text."""

    input: TaskInput
    references: tuple[str, ...]
    text: str

    @classmethod
    def create(cls, evaluation: Evaluation) -> "tuple[Sample, ...]":
        return tuple(
            cls(
                input=evaluation.inputs[place],
                references=tuple(evaluation.gold[place])[:_MAX_REFERENCES],
                text=evaluation.found[place],
            )
            for place in _spread(len(evaluation.inputs), _MAX_SAMPLES)
        )


def _spread(num: int, most: int) -> list[int]:
    return list(range(num)) if num <= most else [number * num // most for number in range(most)]


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
        answered = [sum(column) for column in zip(*confusion.matrix, strict=True)]
        return tuple(
            cls.of_counts(label, row[place], answered[place], sum(row) + confusion.unknown[place])
            for place, (label, row) in enumerate(zip(confusion.labels, confusion.matrix, strict=True))
        )

    @classmethod
    def of_label_counts(cls, counts: Sequence[LabelCounts]) -> "tuple[LabelScores, ...]":
        return tuple(
            cls.of_counts(own.label, own.right, own.right + own.extra, own.right + own.missed) for own in counts
        )

    @classmethod
    def of_entities(cls, evaluation: Evaluation, labels: Sequence[str]) -> "tuple[LabelScores, ...]":
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
