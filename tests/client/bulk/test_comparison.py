"""`peltier compare` on the cases of one file, on which it and the server's `/v1/compare` agree."""

import json
from pathlib import Path
from typing import Any

import pytest
from peltier_client.bulk.answers import Answers, Case
from peltier_client.bulk.comparison import compare
from peltier_client.exchange.results import Prediction
from peltier_client.protocol.predict import AdapterRef

FILE = Path(__file__).parents[2] / "support/comparison.cases.json"
CASES: list[dict[str, Any]] = json.loads(FILE.read_text())


def _answers(version: int, found: list[dict[str, Any]], names: list[str]) -> Answers:
    adapter = AdapterRef(tenant="default", name="task", version=version, digest="sha256:0", preset="lora")
    return Answers(f"task@{version}", adapter, tuple(names), [Prediction.model_validate(one) for one in found])


def _input(given: str | list[str]) -> Any:
    return given if isinstance(given, str) else tuple(given)


@pytest.mark.parametrize("case", CASES, ids=[case["kind"] for case in CASES])
def test_two_versions_of_each_type_are_compared(case: dict[str, Any]) -> None:
    """Metrics of both sides and of each label, the better one, the rows that differ, and the p-value."""
    rows = [Case(row["line"], _input(row["input"]), row["label"]) for row in case["rows"]]
    sides = _answers(1, case["first"], case["names"]), _answers(2, case["second"], case["names"])
    found = compare("rows.jsonl", rows, sides, None, max_shown=len(rows))
    assert found.task_type == case["kind"]
    assert expected_of(found) == case["expected"]
    better = {"regression": "nearer", "ranking": "better"}.get(case["kind"], "right")
    assert f"only task@1 is {better} on {found.only_first_right}, only task@2 on" in found.verdict
    assert ("queries." in found.verdict) == (case["kind"] == "ranking")


def expected_of(found) -> dict[str, Any]:
    """The part of a comparison that a case has."""
    sides = {
        side: {"metrics": getattr(found, side).metrics, "classes": getattr(found, side).classes}
        for side in ("first", "second")
    }
    only_right = [found.only_first_right, found.only_second_right]
    lines = [difference.line for difference in found.differences]
    return {
        **sides, "better": found.better, "lines": lines, "only_right": only_right, "p_value": found.p_value,
    }  # fmt: skip
