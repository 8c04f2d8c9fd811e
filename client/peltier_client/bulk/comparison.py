"""Two versions on the same labelled rows: metrics, differing rows and a significance test."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from peltier_client.bulk.entities import read_entities, score_entities, show_entities
from peltier_client.bulk.gold import read_answers, read_label, read_labels, read_number
from peltier_client.bulk.quality import Classes, Metrics, choose_several, classify, match_texts, regress, sign_test
from peltier_client.bulk.ranking_quality import gain, reciprocal_rank
from peltier_client.bulk.span_quality import score_span
from peltier_client.errors import InvalidInput
from peltier_client.exchange.results import Prediction
from peltier_client.protocol import AdapterRef, TextTuple

TaskType = Literal["classification", "multilabel", "regression", "text2text", "ranking", "token-classification", "span"]
# The metric that decides which is better; a lower mean squared error is better.
_MAIN = {
    "classification": "accuracy",
    "multilabel": "f1_micro",
    "regression": "mse",
    "text2text": "exact_match",
    "ranking": "mrr",
    "token-classification": "f1",
    "span": "exact_match",
}
_MAX_P_VALUE = 0.05  # of a difference that is unlikely to be chance


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


class Side(BaseModel):
    """One of the two versions with its metrics; `classes` has the metrics of each label."""

    task: str
    version: int
    digest: str
    preset: str
    metrics: Metrics
    classes: Classes = {}


class Difference(BaseModel):
    """A row with different answers."""

    line: int
    input: str | list[str]
    label: Any
    first: Any
    second: Any


class Comparison(BaseModel):
    """What `peltier compare --json` prints.

    `only_first_right` counts the rows that only `first` answers correctly (in a regression, the rows where it is
    nearer, and in a ranking the queries of which it ranks the first relevant document higher). `better` is absent if
    the metrics are equal. `p_value` is that of McNemar's exact test (in a regression or a ranking, of a sign test).
    """

    data: str
    rows: int
    task_type: TaskType
    first: Side
    second: Side
    better: str | None = None
    verdict: str
    num_different: int
    only_first_right: int
    only_second_right: int
    p_value: float
    differences: list[Difference]


@dataclass(frozen=True)
class _Judged:
    metrics: Metrics
    classes: Classes
    gold: list[Any]
    shown: list[Any]
    errors: list[float]  # of each answer


def compare(
    data: str, cases: Sequence[Case], answers: tuple[Answers, Answers], separator: str | None, max_shown: int
) -> Comparison:
    """Compare both; `InvalidInput` names the line of a label that cannot be read or that neither version has."""
    first, second = answers
    kind = _kind(first), _kind(second)
    if kind[0] != kind[1]:
        raise InvalidInput(
            f"{first.task} is a {kind[0]} task and {second.task} a {kind[1]} task: they cannot be compared"
        )
    judged = [_judge(kind[0], cases, side, separator, {*first.names, *second.names}) for side in answers]
    _refuse_two_readings(cases, answers, judged)
    pairs = list(zip(judged[0].errors, judged[1].errors, strict=True))
    only = sum(a < b for a, b in pairs), sum(b < a for a, b in pairs)
    differing = [n for n, (a, b) in enumerate(zip(judged[0].shown, judged[1].shown, strict=True)) if a != b]
    sides = [_side(*pair) for pair in zip(answers, judged, strict=True)]
    better = _better(kind[0], sides)
    return Comparison(
        data=data,
        rows=len(cases),
        task_type=kind[0],
        first=sides[0],
        second=sides[1],
        better=better,
        verdict=_verdict(kind[0], sides, better, len(differing), only),
        num_different=len(differing),
        only_first_right=only[0],
        only_second_right=only[1],
        p_value=sign_test(*only),
        differences=[
            _difference(cases[n], judged[0].gold[n], judged[0].shown[n], judged[1].shown[n])
            for n in differing[:max_shown]
        ],
    )


def _kind(answers: Answers) -> TaskType:
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


def _judge(kind: TaskType, cases: Sequence[Case], answers: Answers, separator: str | None, known: set[str]) -> _Judged:
    names = answers.names
    if kind == "classification":
        labels = _read(cases, lambda cell: _known(read_label(cell, names), known))
        own = [prediction.label for prediction in answers.found]
        return _Judged(*classify(labels, own, names), labels, own, _wrong(labels, own))
    if kind == "multilabel":
        sets = _read(cases, lambda cell: frozenset(_known(name, known) for name in read_labels(cell, names, separator)))
        chosen = [frozenset(prediction.labels or ()) for prediction in answers.found]
        wanted, answered = list(map(sorted, sets)), list(map(sorted, chosen))
        return _Judged(*choose_several(sets, chosen, names), wanted, answered, _wrong(sets, chosen))
    if kind == "regression":
        numbers = _read(cases, read_number)
        values = [_value(answers, *pair) for pair in zip(cases, answers.found, strict=True)]
        errors = [abs(a - b) for a, b in zip(numbers, values, strict=True)]
        return _Judged(regress(numbers, values), {}, numbers, values, errors)
    if kind == "ranking":
        return _judge_ranking(cases, answers)
    if kind == "token-classification":
        return _judge_entities(cases, answers)
    if kind == "span":
        return _judge_spans(cases, answers)
    texts = [text.strip() for text in _read(cases, lambda cell: read_label(cell, ()))]
    written = [(prediction.text or "").strip() for prediction in answers.found]
    return _Judged(match_texts(texts, written), {}, texts, written, _wrong(texts, written))


def _judge_ranking(cases: Sequence[Case], answers: Answers) -> _Judged:
    """The means over queries with a relevant document. The first row of a query has the error of all its rows."""
    relevance = _read(cases, read_number)
    scores = [prediction.score or 0.0 for prediction in answers.found]
    queries: dict[str, list[int]] = {}
    for row, case in enumerate(cases):
        queries.setdefault(case.input if isinstance(case.input, str) else case.input[0], []).append(row)
    errors, ranks, gains = [0.0] * len(cases), list[float](), list[float]()
    for rows in queries.values():
        grades, own = [relevance[row] for row in rows], [scores[row] for row in rows]
        if max(grades) > 0:
            ranks.append(reciprocal_rank(grades, own))
            gains.append(gain(grades, own))
            errors[rows[0]] = 1 - ranks[-1]
    return _Judged({"mrr": _mean(ranks), "ndcg@10": _mean(gains)}, {}, relevance, scores, errors)


def _judge_entities(cases: Sequence[Case], answers: Answers) -> _Judged:
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
    return _Judged(*score_entities(gold, found), wanted, answered, _wrong(gold, found))


def _judge_spans(cases: Sequence[Case], answers: Answers) -> _Judged:
    gold = _read(cases, read_answers)
    found = [prediction.answer or "" for prediction in answers.found]
    scores = [score_span(*pair) for pair in zip(found, gold, strict=True)]
    metrics = {"exact_match": _mean([exact for exact, _ in scores]), "f1": _mean([f1 for _, f1 in scores])}
    return _Judged(metrics, {}, gold, [text or "no answer" for text in found], [1 - exact for exact, _ in scores])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


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


def _refuse_two_readings(cases: Sequence[Case], answers: Sequence[Answers], judged: Sequence[_Judged]) -> None:
    """An integer stands for the name at that position, and the versions may differ in their order."""
    for case, first, second in zip(cases, judged[0].gold, judged[1].gold, strict=True):
        if first != second:
            raise InvalidInput(
                f"line {case.line}: label {case.label!r} is {first!r} for {answers[0].task} and {second!r} for "
                f"{answers[1].task}; write names instead of integers"
            )


def _value(answers: Answers, case: Case, prediction: Prediction) -> float:
    if prediction.value is None:
        raise InvalidInput(f"{answers.task} gave no number for line {case.line}")
    return prediction.value


def _key(adapter: AdapterRef) -> tuple[str, str, int]:
    return adapter.tenant, adapter.name, adapter.version


def _wrong(gold: Sequence[Any], found: Sequence[Any]) -> list[float]:
    return [float(own != other) for own, other in zip(gold, found, strict=True)]


def _side(answers: Answers, judged: _Judged) -> Side:
    adapter = answers.adapter
    assert adapter is not None, "there is at least one row"
    return Side(
        task=answers.task,
        version=adapter.version,
        digest=adapter.digest,
        preset=adapter.preset,
        metrics=judged.metrics,
        classes=judged.classes,
    )


def _better(kind: TaskType, sides: Sequence[Side]) -> str | None:
    first, second = (side.metrics[_MAIN[kind]] for side in sides)
    if first == second:
        return None
    return sides[(second > first) != (kind == "regression")].task


def _verdict(
    kind: TaskType, sides: Sequence[Side], better: str | None, num_different: int, only: tuple[int, int]
) -> str:
    metric = _MAIN[kind]
    values = {side.task: side.metrics[metric] for side in sides}
    (first, second), p_value = (side.task for side in sides), sign_test(*only)
    if better is None:
        who = f"Neither is better: {metric} {values[first]:.4f} of both."
    else:
        other = second if better == first else first
        who = f"{better} is better: {metric} {values[better]:.4f} against {values[other]:.4f}."
    what = {"regression": "nearer", "ranking": "better"}.get(kind, "right")
    test = "a sign test" if kind in ("regression", "ranking") else "McNemar's exact test"
    where = (
        f"They answer {num_different:,} rows differently; only {first} is {what} on {only[0]:,}, "
        f"only {second} on {only[1]:,}" + (" queries." if kind == "ranking" else ".")
    )
    chance = "unlikely to be chance" if p_value < _MAX_P_VALUE else "it may well be chance"
    return f"{who} {where} By {test} p = {p_value:.2g}: {chance}."


def _difference(case: Case, gold: Any, first: Any, second: Any) -> Difference:
    inputs = case.input if isinstance(case.input, str) else list(case.input)
    return Difference(line=case.line, input=inputs, label=gold, first=first, second=second)
