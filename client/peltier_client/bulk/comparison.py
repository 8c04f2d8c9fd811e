"""What `peltier compare` prints: two versions on the labelled rows of a file."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from peltier_client.bulk.answers import Answers, Case, find_kind
from peltier_client.errors import InvalidInput
from peltier_client.protocol.comparison import JudgedType
from peltier_client.quality.comparison import JudgedPair, judge_pair
from peltier_client.quality.judgement import AnsweredSide, Judged, LabelReader
from peltier_client.quality.metrics import Classes, MetricValues


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
    reader = LabelReader(kind[0], (first.task, second.task), (first.names, second.names), separator)
    gold = [_read(reader, case) for case in cases]
    sides = [AnsweredSide(side.task, side.names, side.values(kind[0], cases)) for side in answers]
    found = judge_pair(kind[0], [case.first_text for case in cases], gold, *sides)
    return Comparison(
        data=data,
        rows=len(cases),
        task_type=kind[0],
        first=_side(first, found.first),
        second=_side(second, found.second),
        better=None if found.better is None else (first if found.better == "first" else second).task,
        verdict=" ".join((found.verdict.better, found.verdict.rows, found.verdict.chance)),
        num_different=len(found.differing),
        only_first_right=found.only_right[0],
        only_second_right=found.only_right[1],
        p_value=found.p_value,
        differences=[_difference(cases[row], found, row) for row in found.differing[:max_shown]],
    )


def _read(reader: LabelReader, case: Case) -> Any:
    try:
        return reader.read(case.label)
    except InvalidInput as error:
        raise InvalidInput(f"line {case.line}: {error.message}") from None


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


def _difference(case: Case, found: JudgedPair, row: int) -> Difference:
    inputs = case.input if isinstance(case.input, str) else list(case.input)
    first, second = found.first, found.second
    return Difference(
        line=case.line, input=inputs, label=first.gold[row], first=first.shown[row], second=second.shown[row]
    )
