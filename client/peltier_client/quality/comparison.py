"""Two versions on the same labelled rows: metrics, differing rows and a significance test."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from peltier_client.protocol.comparison import ComparisonVerdict, JudgedType, SideName
from peltier_client.quality.judgement import AnsweredSide, Judged, judge
from peltier_client.quality.metrics import sign_test

# The metric that decides which is better; a lower mean squared error is better.
MAIN_METRICS: dict[JudgedType, str] = {
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
class JudgedPair:
    """Both versions judged on the same rows.

    `better` is None if the main metrics are equal. `differing` are the rows with different answers. `only_right` counts
    the rows that only the first and only the second answers correctly (in a regression, the rows where it is nearer,
    and in a ranking the queries of which it ranks the first relevant document higher).
    """

    first: Judged
    second: Judged
    better: SideName | None
    differing: list[int]
    only_right: tuple[int, int]
    p_value: float
    verdict: ComparisonVerdict

    def nearer(self, row: int) -> SideName | None:
        """The version whose answer to `row` is nearer to the label."""
        first, second = self.first.errors[row], self.second.errors[row]
        return None if first == second else "first" if first < second else "second"


def judge_pair(
    kind: JudgedType, texts: Sequence[str], gold: Sequence[Any], first: AnsweredSide, second: AnsweredSide
) -> JudgedPair:
    """Judges the answers of both by the right ones. `texts` has the first text of each row."""
    one, other = (judge(kind, texts, gold, side) for side in (first, second))
    pairs = list(zip(one.errors, other.errors, strict=True))
    only = sum(a < b for a, b in pairs), sum(b < a for a, b in pairs)
    differing = [row for row, (a, b) in enumerate(zip(one.shown, other.shown, strict=True)) if a != b]
    metric = MAIN_METRICS[kind]
    values = one.metrics[metric], other.metrics[metric]
    better: SideName | None = None
    if values[0] != values[1]:
        better = "first" if (values[0] > values[1]) != (kind == "regression") else "second"
    p_value = sign_test(*only)
    tasks = first.task, second.task
    verdict = ComparisonVerdict(
        better=_name_better(metric, tasks, values, better),
        rows=_count_rows(kind, tasks, len(differing), only),
        chance=_weigh(kind, p_value),
    )
    return JudgedPair(one, other, better, differing, only, p_value, verdict)


def _name_better(metric: str, tasks: tuple[str, str], values: tuple[float, float], better: SideName | None) -> str:
    if better is None:
        return f"Neither is better: {metric} {values[0]:.4f} of both."
    best = 0 if better == "first" else 1
    return f"{tasks[best]} is better: {metric} {values[best]:.4f} against {values[1 - best]:.4f}."


def _count_rows(kind: JudgedType, tasks: tuple[str, str], num_different: int, only: tuple[int, int]) -> str:
    what = {"regression": "nearer", "ranking": "better"}.get(kind, "right")
    return (
        f"They answer {num_different:,} rows differently; only {tasks[0]} is {what} on {only[0]:,}, "
        f"only {tasks[1]} on {only[1]:,}" + (" queries." if kind == "ranking" else ".")
    )


def _weigh(kind: JudgedType, p_value: float) -> str:
    test = "a sign test" if kind in ("regression", "ranking") else "McNemar's exact test"
    chance = "unlikely to be chance" if p_value < _MAX_P_VALUE else "it may well be chance"
    return f"By {test} p = {p_value:.2g}: {chance}."
