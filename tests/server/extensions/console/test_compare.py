"""`/v1/compare`: two versions by their answers to the same rows."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.server.conftest import Running, Serve

FILE = Path(__file__).parents[3] / "support/comparison.cases.json"
CASES: list[dict[str, Any]] = json.loads(FILE.read_text())
FIELDS = {
    "classification": "label",
    "multilabel": "labels",
    "regression": "value",
    "text2text": "text",
    "ranking": "score",
    "token-classification": "entities",
    "span": "answer",
}


def side(number: int, answers: list[Any], names: list[str] | None = None) -> dict[str, Any]:
    """One version of a request."""
    return {"task": f"task@{number}", "names": names or [], "answers": answers}


def body_of(case: dict[str, Any]) -> dict[str, Any]:
    """The request of one of the cases on which `peltier compare` agrees."""
    rows, kind = case["rows"], case["kind"]
    texts = [row["input"] if isinstance(row["input"], str) else row["input"][0] for row in rows]
    sides = [[answer_of(kind, one) for one in case[name]] for name in ("first", "second")]
    return {
        "task_type": kind,
        "labels": [row["label"] for row in rows],
        "texts": texts,
        "first": side(1, sides[0], case["names"]),
        "second": side(2, sides[1], case["names"]),
    }


def answer_of(kind: str, prediction: dict[str, Any]) -> Any:
    """What a prediction of this type answers."""
    answer = prediction.get(FIELDS[kind])
    if kind == "token-classification":
        return [{name: entity[name] for name in ("start", "end", "label")} for entity in answer]
    return answer


async def compare(running: Running, body: object) -> httpx2.Response:
    return await running.client.post("/v1/compare", json=body)


def two(labels: list[Any], first: list[Any], second: list[Any], **more: Any) -> dict[str, Any]:
    """A request for two versions of a classification with the labels no and yes."""
    names = ["no", "yes"]
    sides = {"first": side(1, first, names), "second": side(2, second, names)}
    return {"task_type": "classification", "labels": labels, **sides, **more}


@pytest.mark.parametrize("case", CASES, ids=[case["kind"] for case in CASES])
async def test_the_server_judges_as_the_command_does(caller: Running, case: dict[str, Any]) -> None:
    """Metrics of both versions and of each label, the better one, the rows that differ, and the p-value."""
    found = (await compare(caller, body_of(case))).json()
    names = {None: None, "first": "task@1", "second": "task@2"}
    lines = [case["rows"][row["row"]]["line"] for row in found["differences"]]
    sides = {
        name: {"metrics": found[name]["metrics"], "classes": found[name]["classes"]} for name in ("first", "second")
    }
    assert case["expected"] == {
        **sides,
        "better": names[found["better"]],
        "lines": lines,
        "only_right": [found["only_first_right"], found["only_second_right"]],
        "p_value": found["p_value"],
    }
    assert found["rows"] == len(found["labels"]) == len(case["rows"])
    assert found["main_metric"] in found["first"]["metrics"]


async def test_the_verdict_is_said_in_sentences(caller: Running) -> None:
    """Who is better, how many rows differ, and whether that may be chance."""
    found = (await compare(caller, two([1, "no"], ["yes", "no"], ["no", None]))).json()
    assert found["verdict"] == {
        "better": "task@1 is better: accuracy 1.0000 against 0.0000.",
        "rows": "They answer 2 rows differently; only task@1 is right on 2, only task@2 on 0.",
        "chance": "By McNemar's exact test p = 0.5: it may well be chance.",
    }
    assert found["labels"] == ["yes", "no"]
    assert found["differences"][1] == {"row": 1, "label": "no", "first": "no", "second": None, "better": "first"}


async def test_a_row_whose_label_cannot_be_read_is_left_out(caller: Running) -> None:
    """Each has its reason, and the others keep their numbers."""
    answers = ["yes", "no", "no", "yes"]
    found = (await compare(caller, two([None, "no", "maybe", "yes"], answers, answers))).json()
    assert (found["rows"], found["labels"], found["better"]) == (2, ["no", "yes"], None)
    assert found["problems"] == [
        {"row": 0, "problem": "label None is not a label; it must be a text or a number"},
        {"row": 2, "problem": "label 'maybe' is not one of the 2 labels of either version"},
    ]
    none = (await compare(caller, two(["maybe"], ["no"], ["yes"]))).json()
    assert (none["rows"], none["better"], none["first"]["metrics"]["accuracy"]) == (0, None, 0.0)


async def test_several_labels_may_be_separated(caller: Running) -> None:
    """By the separator that the request names; a JSON list needs none."""
    answers = [["no", "yes"], ["yes"]]
    body = two(["no | yes", '["yes"]'], answers, answers, separator="|") | {"task_type": "multilabel"}
    assert (await compare(caller, body)).json()["first"]["metrics"]["exact_match"] == 1.0


async def test_an_integer_that_means_two_labels_is_a_problem(caller: Running) -> None:
    """The versions have their labels in different orders."""
    body = two([1], ["no"], ["no"])
    body["second"]["names"] = ["yes", "no"]
    (problem,) = (await compare(caller, body)).json()["problems"]
    assert problem["problem"].startswith("label 1 is 'yes' for task@1 and 'no' for task@2; write names")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": []}, "labels: list should have at least 1 item after validation, not 0"),
        ({"labels": ["no", "no"]}, "the body: first.answers has 1 values for 2 labels; each row needs one"),
        ({"texts": []}, "texts: list should have at least 1 item after validation, not 0"),
        ({"task_type": "embedding"}, "task_type is 'embedding': input should be 'classification', "),
        ({"task_type": "ranking"}, "the body: a ranking needs the texts of the rows"),
        ({"task_type": "regression"}, "answer 0 of task@1 is not a number, which a regression task answers"),
        ({"task_type": "multilabel"}, "answer 0 of task@1 is not a list of labels, which a multilabel task answers"),
        ({"first": side(1, [True])}, "first.answers.0 is True: must be a text, a number, a list of texts, a list of "),
        ({"first": side(1, [1e300])}, "first.answers.0 is 1e+300: must be a text, a number, "),
        ({"first": side(1, ["\ud800"])}, "first.answers.0"),
        ({"second": {"task": "a"}}, "second.answers is missing"),
        ({"better": "first"}, "better is unknown here"),
    ],
)
async def test_a_wrong_request_is_refused_in_one_sentence(caller, change, message):
    content = json.dumps({**two(["no"], ["no"], ["yes"]), **change}).encode()
    response = await caller.client.post("/v1/compare", content=content, headers={"content-type": "application/json"})
    assert response.status_code == 422, response.text
    assert response.json()["error"]["code"] == "invalid_input"
    assert message in response.json()["error"]["message"]


async def test_what_has_no_metric_is_refused(caller: Running) -> None:
    """A gain that divides by zero, and a label that no answer can carry, are mistakes of the request."""
    ranking = {
        "task_type": "ranking",
        "labels": [1, -1.584962500721156],
        "texts": ["q", "q"],
        "first": side(1, [0.5, 0.25]),
        "second": side(2, [0.25, 0.5]),
    }
    refused = await compare(caller, ranking)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_input")
    assert refused.json()["error"]["message"] == "the labels and answers are numbers of which no metric can be computed"
    cell = '[{"start": 0, "end": 1, "label": "\\ud800"}]'
    entities = {
        "task_type": "token-classification",
        "labels": [cell],
        "texts": ["a"],
        "first": side(1, [[]]),
        "second": side(2, [[]]),
    }
    refused = await compare(caller, entities)
    assert (refused.status_code, refused.json()["error"]["message"]) == (422, "a label is not valid Unicode")


async def test_huge_numbers_are_problems(caller: Running) -> None:
    """No metric could be computed of their squares."""
    body = two([1e200, 10**400, 1], [1.0] * 3, [2.0] * 3) | {"task_type": "regression"}
    found = (await compare(caller, body)).json()
    assert (found["rows"], [one["row"] for one in found["problems"]]) == (1, [0, 1])
    assert found["better"] == "first"


async def test_a_comparison_needs_the_scope_of_predictions(serve: Serve) -> None:
    """It is work that the server does for a tenant, which counts as one request."""
    async with serve(admin_key="plt_of_the_operator") as running:
        operator = {"authorization": "Bearer plt_of_the_operator"}
        made = await running.client.post("/v1/keys", json={"scopes": ["publish"]}, headers=operator)
        headers = {"authorization": f"Bearer {made.json()['key']}"}
        body = two(["no"], ["no"], ["yes"])
        refused = await running.client.post("/v1/compare", json=body, headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
        assert (await running.client.post("/v1/compare", json=body, headers=operator)).status_code == 200
        assert (await running.client.post("/v1/compare", json=body)).status_code == 401
