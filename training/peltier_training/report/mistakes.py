"""Validation rows with wrong answers."""

from collections.abc import Sequence

import numpy as np
from peltier_adapters.answers.labels import scores
from peltier_adapters.artifact.manifest import TaskInput
from peltier_adapters.spec.maps import Spec
from peltier_adapters.spec.tasks import TaskSpec
from peltier_client.bulk.quality import score_answer

from peltier_training.data.gold import GoldEntity, describe_entities
from peltier_training.evaluate.evaluation import Evaluation

MAX_MISTAKES = 20
MAX_TEXT_LEN = 300
MAX_LABEL_LEN = 120
_NO_LABEL = "no label"
_NO_ANSWER = "no answer"
_NO_ENTITY = "no entity"


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
            case "regression" | "embedding":
                return _of_numbers(evaluation)
            case "span":
                return _of_spans(evaluation)
            case "token-classification":
                return _of_entities(evaluation)
        return None


def _of_classes(evaluation: Evaluation, task: TaskSpec) -> tuple[Mistake, ...]:
    gold, found = np.array(evaluation.gold), np.array(evaluation.found)
    sure = None
    if evaluation.scores is not None:
        sure = scores(task, evaluation.scores.float()).max(-1).values.numpy()
    return tuple(
        Mistake(
            input=_texts(evaluation.inputs[row]),
            label=_cut(task.labels[gold[row]], MAX_LABEL_LEN),
            answer=_cut(task.labels[found[row]], MAX_LABEL_LEN) if found[row] >= 0 else _NO_LABEL,
            score=None if sure is None else float(sure[row]),
        )
        for row in _worst(gold != found, np.zeros(len(gold)) if sure is None else sure)
    )


def _of_sets(evaluation: Evaluation, task: TaskSpec) -> tuple[Mistake, ...]:
    gold, found = (np.array(answers, dtype=bool) for answers in (evaluation.gold, evaluation.found))
    assert evaluation.scores is not None, "labels are chosen by their logits"
    probabilities = scores(task, evaluation.scores.float()).numpy()
    apart = np.abs(probabilities - gold).max(-1)
    return tuple(
        Mistake(
            input=_texts(evaluation.inputs[row]),
            label=_names(task.labels, gold[row]),
            answer=_names(task.labels, found[row]),
            score=float(apart[row]),
        )
        for row in _worst((gold != found).any(-1), apart)
    )


def _of_numbers(evaluation: Evaluation) -> tuple[Mistake, ...]:
    gold, found = (np.array(answers, dtype=float) for answers in (evaluation.gold, evaluation.found))
    apart = np.abs(gold - found)
    return tuple(
        Mistake(input=_texts(evaluation.inputs[row]), label=f"{gold[row]:.4g}", answer=f"{found[row]:.4g}", score=None)
        for row in _worst(apart > 0, apart)
    )


def _of_spans(evaluation: Evaluation) -> tuple[Mistake, ...]:
    pairs = list(zip(evaluation.found, evaluation.gold, strict=True))
    wrong = np.array([score_answer(gold, found.answer)[0] < 1 for found, gold in pairs])
    return tuple(
        Mistake(
            input=_texts(evaluation.inputs[row]),
            label=_cut(" | ".join(dict.fromkeys(evaluation.gold[row])) or _NO_ANSWER, MAX_LABEL_LEN),
            answer=_cut(evaluation.found[row].answer or _NO_ANSWER, MAX_LABEL_LEN),
            score=evaluation.found[row].score,
        )
        for row in _worst(wrong, np.array([found.score for found, _ in pairs]))
    )


def _of_entities(evaluation: Evaluation) -> tuple[Mistake, ...]:
    wrong = np.array([len({*gold} ^ {*found}) for gold, found in zip(evaluation.gold, evaluation.found, strict=True)])
    return tuple(
        Mistake(
            input=_texts(evaluation.inputs[row]),
            label=_entities(evaluation.inputs[row], evaluation.gold[row]),
            answer=_entities(evaluation.inputs[row], evaluation.found[row]),
            score=None,
        )
        for row in _worst(wrong > 0, wrong.astype(float))
    )


def _entities(value: TaskInput, entities: Sequence[GoldEntity]) -> str:
    assert isinstance(value, str), "a token classification has single texts"
    return _cut(", ".join(describe_entities(value, entities)) or _NO_ENTITY, MAX_LABEL_LEN)


def _worst(
    wrong: "np.ndarray[tuple[int], np.dtype[np.bool_]]", by: "np.ndarray[tuple[int], np.dtype[np.floating]]"
) -> list[int]:
    """The wrong rows by descending `by`, equal ones in their order."""
    rows = np.flatnonzero(wrong)
    order = np.argsort(-by[rows], kind="stable")
    return [int(row) for row in rows[order][:MAX_MISTAKES]]


def _names(labels: Sequence[str], chosen: Sequence[bool]) -> str:
    return _cut(
        ", ".join(label for label, is_chosen in zip(labels, chosen, strict=True) if is_chosen) or _NO_LABEL,
        MAX_LABEL_LEN,
    )


def _texts(value: TaskInput) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value)
    return tuple(_cut(text, MAX_TEXT_LEN) for text in texts)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
