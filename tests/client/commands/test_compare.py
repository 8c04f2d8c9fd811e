"""`peltier compare`, over a real socket."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import Answer, answer_for


class Judge:
    """Answers `sst2@1` and `sst2@2` from what a test says of each, by text."""

    def __init__(self, server) -> None:
        self.server = server
        self.answers: dict[str, dict[str, dict[str, Any]]] = {"sst2@1": {}, "sst2@2": {}}
        self.versions = {"sst2@1": 1, "sst2@2": 2}
        self.brief = False
        server.planned = self

    def __bool__(self) -> bool:
        return True

    def popleft(self) -> Answer:
        request = self.server.received[-1]
        whole = json.loads(request.body).get("parameters", {}).get("top_k") is not None
        task = request.path.split("/")[3]
        inputs = json.loads(request.body)["inputs"]
        keys = [one if isinstance(one, str) else "+".join(one) for one in inputs]
        body = answer_for("sst2", len(inputs)) | {"predictions": [self.answers[task][key] for key in keys]}
        if self.brief and not whole:
            for number, one in enumerate(body["predictions"]):
                body["predictions"][number] = {**one, "scores": {one["label"]: 1.0}}
        body["adapter"] = {**body["adapter"], "name": "sst2", "version": self.versions[task]}
        return Answer(200, body)


@pytest.fixture
def judge(server) -> Judge:
    return Judge(server)


@pytest.fixture
def compare(peltier, tmp_path: Path):
    """`compare(rows, words…)` compares the two versions on these rows."""

    def run(rows: list[dict[str, Any]], *words: str) -> Any:
        path = tmp_path / "data.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return peltier("compare", "sst2@1", "sst2@2", "--data", str(path), *words)

    return run


def label(name: str) -> dict[str, Any]:
    return {"label": name, "score": 1.0, "scores": {"no": 0.0, "yes": 0.0}}


def test_labels_are_numbered_by_all_of_them(compare, judge: Judge) -> None:
    """Also where the server answers the best scores alone, of a task with very many labels."""
    judge.brief = True
    for task in judge.answers:
        judge.answers[task] = {"a": label("yes"), "b": label("no")}
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": 0}]
    document = json.loads(compare(rows, "--json").out)
    assert document["first"]["metrics"]["accuracy"] == 1.0


def test_two_classifiers(compare, judge: Judge) -> None:
    """Metrics of both, labels and rows that differ, and in words who is better and whether that may be chance."""
    texts = [str(number) for number in range(20)]
    rows = [{"text": text, "label": 1 if number % 2 else "no"} for number, text in enumerate(texts)]
    right = {text: label("yes" if number % 2 else "no") for number, text in enumerate(texts)}
    judge.answers["sst2@1"] = right
    judge.answers["sst2@2"] = {**right, **{text: label("yes") for text in texts[::2]}}
    document = json.loads(compare(rows, "--json", "--batch-size", "8").out)
    assert (document["rows"], document["task_type"], document["better"]) == (20, "classification", "sst2@1")
    assert [document[side]["metrics"]["accuracy"] for side in ("first", "second")] == [1.0, 0.5]
    assert [document[side]["version"] for side in ("first", "second")] == [1, 2]
    assert document["second"]["classes"]["no"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 10}
    assert (document["num_different"], document["only_first_right"], document["only_second_right"]) == (10, 10, 0)
    assert document["p_value"] == pytest.approx(2 / 2**10)
    assert document["differences"][1] == {"line": 3, "input": "2", "label": "no", "first": "no", "second": "yes"}
    outcome = compare(rows, "--differences", "1")
    assert "sst2@1 is better: accuracy 1.0000 against 0.5000." in outcome.out
    assert (
        "only sst2@1 is right on 10, only sst2@2 on 0. By McNemar's exact test p = 0.002: unlikely to be" in outcome.out
    )
    lines = [line.split() for line in outcome.out.splitlines()]
    assert ["accuracy", "1.0000", "0.5000", "-0.5000"] in lines
    assert ["1", "0", "no", "no", "yes"] in lines
    assert not any(line[:2] == ["3", "2"] for line in lines)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_so_many_requests_are_sent_at_a_time(compare, server, concurrency: int) -> None:
    """Of both versions together: as many as `--concurrency` says and no more."""
    running, most = threading.Semaphore(concurrency), threading.Barrier(concurrency)

    def answer() -> Answer:
        def before() -> None:
            assert running.acquire(blocking=False), "too many requests at a time"
            most.wait(120)
            running.release()

        return Answer(200, answer_for("sst2", 1), before=before)

    server.planned.extend(answer() for _ in range(4))
    rows = [{"text": text, "label": "positive"} for text in "ab"]
    outcome = compare(rows, "--batch-size", "1", "--concurrency", str(concurrency))
    assert outcome.status == 0, outcome.err


def test_labels_can_be_separated(compare, judge):
    """By what the command names."""
    for task in judge.answers:
        judge.answers[task] = {"a": {"labels": ["food", "price"], "scores": {"food": 0.0, "price": 0.0}}}
    document = json.loads(compare([{"text": "a", "label": "food|price"}], "--label-separator", "|", "--json").out)
    assert document["first"]["metrics"]["exact_match"] == 1.0


def test_equal_versions(compare, judge: Judge) -> None:
    """Neither is better, and no row differs."""
    judge.answers["sst2@1"] = judge.answers["sst2@2"] = {"a": label("yes")}
    outcome = compare([{"text": "a", "label": "yes"}])
    assert "Neither is better: accuracy 1.0000 of both. They answer 0 rows differently" in outcome.out


def test_pairs_with_numbers(compare, judge: Judge) -> None:
    """Of a regression who is nearer counts, and less error is better."""
    judge.answers["sst2@1"] = {"a+b": {"value": 1.0}, "c+d": {"value": 2.0}}
    judge.answers["sst2@2"] = {"a+b": {"value": 1.5}, "c+d": {"value": 3.5}}
    rows = [{"x": "a", "y": "b", "score": 1}, {"x": "c", "y": "d", "score": "3.0"}]
    words = ("--text-column", "x", "--text-column", "y", "--label-column", "score", "--json")
    document = json.loads(compare(rows, *words).out)
    assert (document["task_type"], document["better"]) == ("regression", "sst2@2")
    assert [document[side]["metrics"]["mse"] for side in ("first", "second")] == [0.5, 0.25]
    assert (document["only_first_right"], document["only_second_right"]) == (1, 1)
    assert document["differences"][0]["input"] == ["a", "b"]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"text": "a", "label": "maybe"}, "line 2: label 'maybe' is not one of the 2 labels of either version"),
        ({"text": "a", "label": None}, "line 2: label None is not a label"),
        ({"text": 3, "label": "yes"}, "data.jsonl:2 column 'text' is '3'; it must be a text"),
        ({"text": "a"}, "data.jsonl:2 has no column 'label'"),
    ],
)
def test_a_row_that_cannot_be_judged_is_named(compare, judge, row, sentence):
    """Metrics of a part of the rows would be those of another file."""
    judge.answers["sst2@1"] = judge.answers["sst2@2"] = {"a": label("yes")}
    outcome = compare([{"text": "a", "label": "yes"}, row])
    assert (outcome.status, outcome.out) == (1, "")
    assert sentence in outcome.err
    assert outcome.err.count("\n") == 1


def test_what_cannot_be_compared(compare, judge: Judge) -> None:
    """Two kinds of task; an alias that moves; a file without rows."""
    judge.answers["sst2@1"], judge.answers["sst2@2"] = {"a": label("yes")}, {"a": {"value": 1.0}}
    assert "sst2@1 is a classification task and sst2@2 a regression task" in compare([{"text": "a", "label": 1}]).err
    assert compare([]).err.endswith("data.jsonl has no rows\n")
    judge.answers["sst2@2"] = {"a": label("yes")}
    judge.versions = Moving()
    outcome = compare([{"text": "a", "label": "yes"}] * 2, "--batch-size", "1")
    assert "was answered by versions" in outcome.err


class Moving(dict[str, int]):
    """Each request is answered by another version."""

    def __missing__(self, task: str) -> int:
        self.count = getattr(self, "count", 0) + 1
        return self.count


@pytest.mark.parametrize(
    ("cell", "first", "second"),
    [(1, "'yes'", "'no'"), ([1], "['yes']", "['no']")],
)
def test_an_integer_that_means_two_names_is_refused(judge, compare, cell, first, second):
    """The versions have their labels in different orders, so each would be judged by other labels."""
    several = isinstance(cell, list)
    own = {"labels": ["yes"]} if several else {"label": "yes", "score": 1.0}
    judge.answers["sst2@1"]["a"] = own | {"scores": {"no": 0.0, "yes": 1.0}}
    judge.answers["sst2@2"]["a"] = own | {"scores": {"yes": 1.0, "no": 0.0}}
    outcome = compare([{"text": "a", "label": cell}])
    assert outcome.status == 1
    readings = f"label {cell!r} is {first} for sst2@1 and {second} for sst2@2"
    assert outcome.err == f"error: line 1: {readings}; write names instead of integers\n"
    named = ["yes"] if several else "yes"
    assert compare([{"text": "a", "label": named}]).status == 0


def test_embeddings_are_not_compared(compare, judge: Judge) -> None:
    """One sentence names the task and the command that judges them."""
    for task in judge.answers:
        judge.answers[task] = {"a": {"embedding": [0.6, 0.8]}}
    done = compare([{"text": "a", "label": "x"}])
    assert done.status == 1
    assert "sst2@1 answers embeddings, which have no right answer; see `peltier evaluate`" in done.err
