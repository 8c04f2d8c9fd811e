"""The answers on the validation set compared with the right ones, and the scores of each label."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import compress

import numpy as np
from peltier_adapters.answers.labels import scores
from peltier_adapters.artifact.manifest import TaskInput
from peltier_adapters.spec.maps import Spec
from peltier_adapters.spec.tasks import TaskSpec
from peltier_client.protocol.reports import ReportLabel
from peltier_client.quality.metrics import score_answer

from peltier_training.data.gold import GoldEntity, describe_entities
from peltier_training.evaluate.evaluation import Evaluation

_MAX_POINTS = 1000
_MAX_SAMPLES = 8
_MAX_REFERENCES = 256  # as many as a server takes
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
MAX_MISTAKES = 20
MAX_TEXT_LEN = 300
MAX_LABEL_LEN = 120
_NO_LABEL = "no label"
_NO_ANSWER = "no answer"
_NO_ENTITY = "no entity"


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


class LabelScores(ReportLabel, extra="forbid"):
    """Precision, recall and F1 of one label. `rows` are its validation rows, or its entities in them. Precision is None
    for a label that was never predicted, recall for one without rows, and F1 if both are None."""

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


class Mistake(Spec):
    """One row: its texts, its label and the answer. Texts and labels are truncated to 300 and 120 characters.

    `score` is the probability of the predicted label or answer, or in a multilabel task the largest error of a label's
    probability. It is None for generated texts, numbers and entities."""

    input: tuple[str, ...]
    label: str
    answer: str
    score: float | None

    @classmethod
    def create(cls, evaluation: Evaluation, task: TaskSpec) -> "tuple[Mistake, ...] | None":
        """The mistakes with the highest scores, in a regression those with the largest errors, in a token
        classification those with the most wrong entities; None for generated texts, which have samples instead."""
        match task.type:
            case "classification":
                return _of_classes(evaluation, task)
            case "multilabel":
                return _of_sets(evaluation, task)
            case "regression" | "embedding" | "sparse-embedding" | "multi-vector-embedding":
                return _of_numbers(evaluation)
            case "span":
                return _of_spans(evaluation)
            case "token-classification":
                return _of_entities(evaluation)
        return None


def _of_classes(evaluation: Evaluation, task: TaskSpec) -> tuple[Mistake, ...]:
    gold, found = np.array(evaluation.gold), np.array(evaluation.found)
    sure: Sequence[float | None] = [None] * len(gold)
    order = np.zeros(len(gold))
    if evaluation.scores is not None:
        order = scores(task, evaluation.scores.float()).max(-1).values.numpy()
        sure = order.tolist()
    labels = [*task.labels, _NO_LABEL]  # -1 is the last
    rows = _worst(gold != found, order)
    return _listed(evaluation, rows, lambda row: (labels[gold[row]], labels[found[row]], sure[row]))


def _of_sets(evaluation: Evaluation, task: TaskSpec) -> tuple[Mistake, ...]:
    gold, found = (np.array(answers, dtype=bool) for answers in (evaluation.gold, evaluation.found))
    assert evaluation.scores is not None, "labels are chosen by their logits"
    apart = np.abs(scores(task, evaluation.scores.float()).numpy() - gold).max(-1)

    def names(chosen: Sequence[bool]) -> str:
        return ", ".join(compress(task.labels, chosen)) or _NO_LABEL

    rows = _worst((gold != found).any(-1), apart)
    return _listed(evaluation, rows, lambda row: (names(gold[row]), names(found[row]), float(apart[row])))


def _of_numbers(evaluation: Evaluation) -> tuple[Mistake, ...]:
    gold, found = (np.array(answers, dtype=float) for answers in (evaluation.gold, evaluation.found))
    apart = np.abs(gold - found)
    rows = _worst(apart > 0, apart)
    return _listed(evaluation, rows, lambda row: (f"{gold[row]:.4g}", f"{found[row]:.4g}", None))


def _of_spans(evaluation: Evaluation) -> tuple[Mistake, ...]:
    gold, found = evaluation.gold, evaluation.found
    wrong = np.array([score_answer(own, answer.answer)[0] < 1 for answer, own in zip(found, gold, strict=True)])
    rows = _worst(wrong, np.array([answer.score for answer in found]))
    return _listed(
        evaluation,
        rows,
        lambda row: (
            " | ".join(dict.fromkeys(gold[row])) or _NO_ANSWER,
            found[row].answer or _NO_ANSWER,
            found[row].score,
        ),
    )


def _of_entities(evaluation: Evaluation) -> tuple[Mistake, ...]:
    wrong = np.array([len({*gold} ^ {*found}) for gold, found in zip(evaluation.gold, evaluation.found, strict=True)])

    def entities(row: int, own: Sequence[GoldEntity]) -> str:
        text = evaluation.inputs[row]
        assert isinstance(text, str), "a token classification has single texts"
        return ", ".join(describe_entities(text, own)) or _NO_ENTITY

    rows = _worst(wrong > 0, wrong.astype(float))
    return _listed(
        evaluation, rows, lambda row: (entities(row, evaluation.gold[row]), entities(row, evaluation.found[row]), None)
    )


def _listed(
    evaluation: Evaluation, rows: Sequence[int], show: Callable[[int], tuple[str, str, float | None]]
) -> tuple[Mistake, ...]:
    """The mistakes in `rows`; `show` gives the label, the answer and the score of a row."""
    shown = [(row, *show(row)) for row in rows]
    return tuple(
        Mistake(
            input=_texts(evaluation.inputs[row]),
            label=_cut(label, MAX_LABEL_LEN),
            answer=_cut(answer, MAX_LABEL_LEN),
            score=score,
        )
        for row, label, answer, score in shown
    )


def _worst(
    wrong: "np.ndarray[tuple[int], np.dtype[np.bool_]]", by: "np.ndarray[tuple[int], np.dtype[np.floating]]"
) -> list[int]:
    """The wrong rows by descending `by`, equal ones in their order."""
    rows = np.flatnonzero(wrong)
    order = np.argsort(-by[rows], kind="stable")
    return [int(row) for row in rows[order][:MAX_MISTAKES]]


def _texts(value: TaskInput) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value)
    return tuple(_cut(text, MAX_TEXT_LEN) for text in texts)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
