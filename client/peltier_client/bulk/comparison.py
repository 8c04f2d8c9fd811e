"""Two versions on the same labelled rows: metrics, differing rows and a significance test."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from peltier_client.bulk.judgement import Answers, Case, Judged, JudgedType, find_kind, judge
from peltier_client.bulk.quality import Classes, MetricValues, sign_test
from peltier_client.errors import InvalidInput

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


class Side(BaseModel):
    """One of the two versions with its metrics; `classes` has the metrics of each label."""

    task: str
    version: int
    digest: str
    preset: str
    metrics: MetricValues
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
    task_type: JudgedType
    first: Side
    second: Side
    better: str | None = None
    verdict: str
    num_different: int
    only_first_right: int
    only_second_right: int
    p_value: float
    differences: list[Difference]


def compare(
    data: str, cases: Sequence[Case], answers: tuple[Answers, Answers], separator: str | None, max_shown: int
) -> Comparison:
    """Compare both; `InvalidInput` names the line of a label that cannot be read or that neither version has."""
    first, second = answers
    kind = find_kind(first), find_kind(second)
    if kind[0] != kind[1]:
        raise InvalidInput(
            f"{first.task} is a {kind[0]} task and {second.task} a {kind[1]} task: they cannot be compared"
        )
    judged = [judge(kind[0], cases, side, separator, {*first.names, *second.names}) for side in answers]
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


def _refuse_two_readings(cases: Sequence[Case], answers: Sequence[Answers], judged: Sequence[Judged]) -> None:
    """An integer stands for the name at that position, and the versions may differ in their order."""
    for case, first, second in zip(cases, judged[0].gold, judged[1].gold, strict=True):
        if first != second:
            raise InvalidInput(
                f"line {case.line}: label {case.label!r} is {first!r} for {answers[0].task} and {second!r} for "
                f"{answers[1].task}; write names instead of integers"
            )


def _side(answers: Answers, judged: Judged) -> Side:
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


def _better(kind: JudgedType, sides: Sequence[Side]) -> str | None:
    first, second = (side.metrics[_MAIN[kind]] for side in sides)
    if first == second:
        return None
    return sides[(second > first) != (kind == "regression")].task


def _verdict(
    kind: JudgedType, sides: Sequence[Side], better: str | None, num_different: int, only: tuple[int, int]
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
