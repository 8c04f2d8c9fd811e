"""The answers on the validation set compared with the right ones."""

from collections.abc import Sequence

import numpy as np
from peltier_adapters.artifact.manifest import TaskInput
from peltier_adapters.spec.maps import Spec

from peltier_training.evaluate.evaluation import Evaluation

_MAX_POINTS = 1000
_MAX_SAMPLES = 8
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


class Confusion(Spec):
    """`matrix[i][j]` counts rows with label i and answer j; `unknown[i]` those whose answer is no label."""

    labels: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...]
    unknown: tuple[int, ...]

    @classmethod
    def create(cls, evaluation: Evaluation, labels: Sequence[str]) -> "Confusion":
        """The confusion of a classification."""
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
        """The counts of all labels."""
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
        """The residuals of a regression."""
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
    """An input of a text2text task, its references, and the generated text."""

    input: TaskInput
    references: tuple[str, ...]
    text: str

    @classmethod
    def create(cls, evaluation: Evaluation) -> "tuple[Sample, ...]":
        """A few evenly spaced inputs."""
        return tuple(
            cls(input=evaluation.inputs[place], references=tuple(evaluation.gold[place]), text=evaluation.found[place])
            for place in _spread(len(evaluation.inputs), _MAX_SAMPLES)
        )


def _spread(num: int, most: int) -> list[int]:
    return list(range(num)) if num <= most else [number * num // most for number in range(most)]
