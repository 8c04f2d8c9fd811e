"""Judges the answers of one version by the labels of their rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from peltier_client.bulk.gold import read_answers, read_entities, read_label, read_labels, read_number, show_entities
from peltier_client.bulk.quality import (
    Classes,
    MetricValues,
    choose_several,
    classify,
    match_answers,
    match_texts,
    rank_documents,
    regress,
    score_entities,
)
from peltier_client.errors import InvalidInput
from peltier_client.exchange.results import Prediction
from peltier_client.protocol import AdapterRef, TextTuple

JudgedType = Literal[
    "classification", "multilabel", "regression", "text2text", "ranking", "token-classification", "span"
]


@dataclass(frozen=True)
class Case:
    """One labelled row; `label` is its cell as the file has it."""

    line: int
    input: str | TextTuple
    label: Any


@dataclass
class Answers:
    """The answers of one task reference, row by row. `names` are its labels in order if its answers have scores."""

    task: str
    adapter: AdapterRef | None = None
    names: tuple[str, ...] = ()
    found: list[Prediction] = field(default_factory=list)
    num_truncated: int = 0

    def add(self, prediction: Prediction, adapter: AdapterRef) -> None:
        """Add an answer. Raises `InvalidInput` if it comes from another version than the others."""
        if self.adapter is not None and _key(self.adapter) != _key(adapter):
            versions = f"{self.adapter.version} and {adapter.version}"
            raise InvalidInput(f"{self.task} was answered by versions {versions}; name one, such as {adapter.name}@1")
        self.adapter = adapter
        self.names = self.names or tuple(prediction.scores or ())
        # Scores of every label for every row would need most of the memory.
        self.found.append(prediction.model_copy(update={"scores": None, "gates": None}))


@dataclass(frozen=True)
class Judged:
    """Judged answers: their metrics, the right answers and the given ones as they are shown, and the error of each
    row."""

    metrics: MetricValues
    classes: Classes
    gold: list[Any]
    shown: list[Any]
    errors: list[float]


def find_kind(answers: Answers) -> JudgedType:
    """The type of the task, by the form of its answers. Raises `InvalidInput` for embeddings."""
    found = answers.found
    if any(prediction.labels is not None for prediction in found):
        return "multilabel"
    if any(prediction.entities is not None for prediction in found):
        return "token-classification"
    if any(prediction.value is not None for prediction in found):
        return "regression"
    # A generated text has a label if it is one of the task's labels.
    if any(prediction.label is not None for prediction in found):
        return "classification"
    if any(prediction.answer is not None for prediction in found):
        return "span"
    if any(prediction.embedding is not None for prediction in found):
        raise InvalidInput(f"{answers.task} answers embeddings, which have no right answer; see `peltier evaluate`")
    is_ranking = any(prediction.score is not None and prediction.text is None for prediction in found)
    return "ranking" if is_ranking else "text2text"


def judge(kind: JudgedType, cases: Sequence[Case], answers: Answers, separator: str | None, known: set[str]) -> Judged:
    """Judge answers by the labels of `cases`, whose names are among `known`. Raises `InvalidInput` with the line of a
    label that cannot be read."""
    names = answers.names
    if kind == "classification":
        labels = _read(cases, lambda cell: _known(read_label(cell, names), known))
        own = [prediction.label for prediction in answers.found]
        return Judged(*classify(labels, own, names), labels, own, _wrong(labels, own))
    if kind == "multilabel":
        sets = _read(cases, lambda cell: frozenset(_known(name, known) for name in read_labels(cell, names, separator)))
        chosen = [frozenset(prediction.labels or ()) for prediction in answers.found]
        wanted, answered = list(map(sorted, sets)), list(map(sorted, chosen))
        return Judged(*choose_several(sets, chosen, names), wanted, answered, _wrong(sets, chosen))
    if kind == "regression":
        numbers = _read(cases, read_number)
        values = [_value(answers, *pair) for pair in zip(cases, answers.found, strict=True)]
        errors = [abs(a - b) for a, b in zip(numbers, values, strict=True)]
        return Judged(regress(numbers, values), {}, numbers, values, errors)
    if kind == "ranking":
        return _judge_ranking(cases, answers)
    if kind == "token-classification":
        return _judge_entities(cases, answers)
    if kind == "span":
        return _judge_spans(cases, answers)
    texts = [text.strip() for text in _read(cases, lambda cell: read_label(cell, ()))]
    written = [(prediction.text or "").strip() for prediction in answers.found]
    return Judged(match_texts(texts, written), {}, texts, written, _wrong(texts, written))


def _judge_ranking(cases: Sequence[Case], answers: Answers) -> Judged:
    """The means over queries with a relevant document. The first row of a query has the error of all its rows."""
    relevance = _read(cases, read_number)
    scores = [prediction.score or 0.0 for prediction in answers.found]
    queries = [case.input if isinstance(case.input, str) else case.input[0] for case in cases]
    metrics, ranks = rank_documents(queries, relevance, scores)
    errors = [1 - ranks.get(row, 1.0) for row in range(len(cases))]
    return Judged(metrics, {}, relevance, scores, errors)


def _judge_entities(cases: Sequence[Case], answers: Answers) -> Judged:
    """A row is right if all its entities are."""
    gold = _read(cases, read_entities)
    found = [
        frozenset((entity.start, entity.end, entity.label) for entity in prediction.entities or ())
        for prediction in answers.found
    ]
    wanted, answered = (
        [show_entities(str(case.input), spans) for case, spans in zip(cases, rows, strict=True)]
        for rows in (gold, found)
    )
    return Judged(*score_entities(gold, found), wanted, answered, _wrong(gold, found))


def _judge_spans(cases: Sequence[Case], answers: Answers) -> Judged:
    gold = _read(cases, read_answers)
    found = [prediction.answer or "" for prediction in answers.found]
    metrics, exact = match_answers(gold, found)
    return Judged(metrics, {}, gold, [text or "no answer" for text in found], [1 - own for own in exact])


def _read(cases: Sequence[Case], read: Callable[[Any], Any]) -> list[Any]:
    found = []
    for case in cases:
        try:
            found.append(read(case.label))
        except InvalidInput as error:
            raise InvalidInput(f"line {case.line}: {error.message}") from None
    return found


def _known(label: str, known: set[str]) -> str:
    if known and label not in known:
        raise InvalidInput(f"label {label!r} is not one of the {len(known)} labels of either version")
    return label


def _value(answers: Answers, case: Case, prediction: Prediction) -> float:
    if prediction.value is None:
        raise InvalidInput(f"{answers.task} gave no number for line {case.line}")
    return prediction.value


def _key(adapter: AdapterRef) -> tuple[str, str, int]:
    return adapter.tenant, adapter.name, adapter.version


def _wrong(gold: Sequence[Any], found: Sequence[Any]) -> list[float]:
    return [float(own != other) for own, other in zip(gold, found, strict=True)]
