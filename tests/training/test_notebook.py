"""`peltier.train` and what it returns."""

import json
import os
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import peltier
import pytest
from peltier_adapters.errors import ArtifactError
from peltier_backbone.backbone import Backbone
from peltier_training.data.examples import read_examples
from peltier_training.errors import TrainingError
from peltier_training.notebook import write_rows

from benchmarks.common.libraries import installed
from tests.support.server_process import Server

SETTINGS = {"epochs": 1, "batch_size": 16, "max_length": 32, "rank": 2}


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def rows(toy: Path) -> list[dict[str, Any]]:
    return rows_of(toy / "classification-train.jsonl")


def train(examples: Any, bert: Backbone, **given: Any) -> peltier.Adapter:
    """A small LoRA."""
    return peltier.train(
        examples,
        **{"task": "toy", "preset": "lora", "settings": SETTINGS, "backbone": bert.name, "device": "cpu"} | given,
    )


@pytest.fixture(scope="module")
def adapter(rows: list[dict[str, Any]], bert: Backbone) -> peltier.Adapter:
    """Trained on four fifths of the rows."""
    return train(rows, bert)


@pytest.fixture(scope="module")
def limited(rows: list[dict[str, Any]], bert: Backbone) -> peltier.Adapter:
    """Trained for four steps at half of the rate, with validation rows that are given."""
    settings = SETTINGS | {"epochs": 50}
    return train(
        rows[:32], bert, validation=rows[32:], settings=settings, learning_rate_multiplier=0.5, budget={"steps": 4}
    )


def test_an_adapter_answers_as_its_artifact_does(adapter, bert, rows, tmp_path):
    """Saved and loaded, it has the same answers and metrics, and its report beside it."""
    path = adapter.save(tmp_path / "toy.safetensors")
    loaded = peltier.load(path, backbone=bert.name, device="cpu")
    texts = [row["text"] for row in rows[:5]]
    answers = adapter.predict(texts)
    assert loaded.predict(texts) == answers
    assert {answer["label"] for answer in answers} <= {"positive", "negative"}
    assert loaded.evaluate(rows) == adapter.evaluate(rows)
    assert loaded.metrics == adapter.metrics
    assert {one.name for one in tmp_path.iterdir()} == {"toy.safetensors", "toy.report.html", "toy.report.json"}
    assert (loaded.name, loaded.report) == ("toy", None)
    assert loaded.predict([]) == []


def test_it_measures_what_it_predicts(adapter: peltier.Adapter, rows: list[dict[str, Any]]) -> None:
    labels = [answer["label"] for answer in adapter.predict([row["text"] for row in rows])]
    right = sum(label == row["label"] for label, row in zip(labels, rows, strict=True))
    assert adapter.evaluate(rows)["accuracy"] == pytest.approx(right / len(rows))


@pytest.mark.slow
def test_it_is_published_on_a_server(adapter, bert, rows, tmp_path):
    """As the next version, with its report, and live under the alias."""
    server = Server(tmp_path / "log", "--backbone", bert.name, "--store", str(tmp_path / "store"))
    try:
        url = server.wait_until_ready().url
        published = [adapter.publish(url, name=name, alias="production") for name in ("toy", "other")]
        assert [(one.name, one.version) for one in published] == [("toy", 1), ("other", 1)]
        stored = server.client.get("/v1/adapters/toy/versions/1/report").json()["report"]
        assert stored["resolved"] == json.loads(adapter.report)["resolved"]
        texts = [row["text"] for row in rows[:3]]
        answered = server.client.post("/v1/tasks/other@production/predict", json={"inputs": texts}).json()
        assert [one["label"] for one in answered["predictions"]] == [one["label"] for one in adapter.predict(texts)]
    finally:
        server.end()


def test_it_shows_itself(adapter: peltier.Adapter) -> None:
    """In a line, and as a table whose texts are escaped."""
    assert repr(adapter).startswith("<Adapter toy: lora on ")
    assert "accuracy" in repr(adapter)
    page = adapter._repr_html_()
    assert "<b>toy</b>" in page
    assert "negative, positive" in page


def test_the_same_examples_give_the_same_adapter(rows, toy, bert, adapter, monkeypatch):
    """As tuples, and from a file; the current directory stays, with nothing new in it."""
    monkeypatch.chdir(toy)
    before = sorted(toy.iterdir())
    pairs = [(row["text"], row["label"]) for row in rows]
    for examples in (pairs, "classification-train.jsonl"):
        again = train(examples, bert)
        assert again.artifact.tensors.keys() == adapter.artifact.tensors.keys()
        assert all(
            bool((again.artifact.tensors[name] == adapter.artifact.tensors[name]).all())
            for name in again.artifact.tensors
        )
    assert (Path.cwd(), sorted(toy.iterdir())) == (toy, before)


def test_examples_are_checked_first(adapter, limited, rows):
    """The pre-flight report is kept; validation examples are those that are given."""
    assert adapter.preflight["rows"]["train"] + adapter.preflight["rows"]["validation"] == len(rows)
    assert limited.preflight["rows"] == {"train": 32, "validation": len(rows) - 32}
    warnings = limited.preflight["warnings"]
    assert json.loads(limited.report)["warnings"][: len(warnings)] == warnings


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"settings": {"colour": 1}}, r"^setting 'colour' is unknown"),
        ({"preset": "nothing"}, r"^preset 'nothing' is unknown"),
        ({"task": "Toy Task"}, r"^task 'Toy Task' is not a name"),
        ({"preset": "full"}, r"^preset 'full' changes the backbone's weights"),
        ({"validation_share": 2.0}, r"^validation_share is 2\.0"),
    ],
)
def test_a_mistake_is_one_sentence(changes, sentence, rows, bert):
    given = {"task": "toy", "backbone": bert.name, "device": "cpu"} | changes
    with pytest.raises(Exception, match=sentence) as raised:
        peltier.train(rows, **given)
    assert getattr(raised.value, "is_user_error", False)


def test_inputs_are_a_list(adapter: peltier.Adapter) -> None:
    """One text would be taken for its letters."""
    with pytest.raises(TrainingError, match=r"^the inputs are one text; give a list of inputs$"):
        adapter.predict("a film")


def test_another_backbone_is_refused(adapter: peltier.Adapter, roberta: Backbone, tmp_path: Path) -> None:
    path = adapter.save(tmp_path / "toy.safetensors")
    with pytest.raises(ArtifactError):
        peltier.load(path, backbone=roberta.name, device="cpu")


def test_a_budget_of_steps_ends_a_training(adapter: peltier.Adapter, limited: peltier.Adapter) -> None:
    """The report has the reason, and the rate that the multiplier gives."""
    whole, half = (json.loads(one.report) for one in (adapter, limited))
    assert half["resolved"]["steps"] == 4
    rates = [one["training"]["hyperparameters"]["learning_rate"] for one in (whole, half)]
    assert rates[1] == pytest.approx(rates[0] / 2)


def test_labels_are_named_by_values_of_python(bert: Backbone) -> None:
    """Such as the distinct ones of a column; rows may spell them otherwise."""
    rows = [(f"good {number}" if number % 2 else f"bad {number}", float(number % 2)) for number in range(24)]
    adapter = train(rows, bert, labels=np.array([1, 0]), budget={"steps": 2})
    assert adapter.manifest.task.labels == ("1", "0")
    with pytest.raises(TrainingError, match=r"^labels is '0,1'"):
        train(rows, bert, labels="0,1")


@pytest.mark.parametrize("labels", [{0: "no", 1: "yes"}, {"yes": 1, "no": 0}, {"yes", "no"}, frozenset({"a", "b"})])
def test_labels_without_an_order_of_their_own_are_refused(labels: Any, bert: Backbone) -> None:
    """A mapping's keys are either positions or in an order that need not be theirs."""
    rule = "it must be a list of names in the order of their positions"
    with pytest.raises(TrainingError, match=rf"^labels is .*, a {type(labels).__name__}; {rule}$"):
        train([("good", 1), ("bad", 0)], bert, labels=labels)


def test_rows_that_cannot_be_used_are_named_without_a_folder_or_a_flag(adapter, bert):
    """The file of the rows is a temporary one, and a flag is of the command line."""
    rows = [("good", "yes"), ("bad", None), ("", "no")]
    first, second = r"examples\.jsonl:2: label None .* a number", r"examples\.jsonl:3: column 'text' is ''; .* text"
    with pytest.raises(TrainingError, match=rf"^2 rows cannot be used: {first}; {second}$"):
        train(rows, bert)
    with pytest.raises(TrainingError, match=r"^validation\.jsonl:1: label None .* a number$"):
        train([("good", "yes"), ("bad", "no")], bert, validation=[("good", None)])
    with pytest.raises(TrainingError, match=r"^examples\.jsonl:1: label None .* a number$"):
        adapter.evaluate([("good", None)])


COLUMNS = ("text", "label")
ROWS = [{"text": "é", "label": "a"}, {"text": "b", "label": None}]
# Rows of real frames, in a process that can import the libraries.
FRAMES = """
import json, sys
from pathlib import Path
import pandas, polars
from datasets import Dataset
from peltier_training.notebook import write_rows
rows = {"text": ["é", "b"], "label": [1, 2], "score": [0.5, None]}
frames = [pandas.DataFrame(rows), polars.DataFrame(rows), Dataset.from_dict(rows)]
print(json.dumps([write_rows(one, Path(sys.argv[1]), ("text", "label")).read_text() for one in frames]))
"""


def written(examples: Any, path: Path) -> list[Any]:
    return [json.loads(line) for line in write_rows(examples, path, COLUMNS).read_text().splitlines()]


def test_rows_are_mappings_or_tuples(tmp_path: Path) -> None:
    """In any iterable, with numpy's values as Python's and a missing number as null."""
    path = tmp_path / "rows.jsonl"
    assert written(ROWS, path) == ROWS
    assert written(iter([("é", "a"), ("b", None)]), path) == ROWS
    values = {"text": np.str_("é"), "label": np.int64(3), "tags": np.array([1.5]), "score": np.float32("nan")}
    assert written([values], path) == [{"text": "é", "label": 3, "tags": [1.5], "score": None}]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.bool_(True), True),
        (np.float64(1.0), 1.0),
        (Decimal("1.50"), 1.5),
        (Decimal("NaN"), None),
        ({"text": np.array(["a"]), "answer_start": np.array([3])}, {"text": ["a"], "answer_start": [3]}),
        ([{"start": np.int64(0), "end": np.int32(1), "label": np.str_("x")}], [{"start": 0, "end": 1, "label": "x"}]),
        (np.array([{"start": np.int64(0)}, None], dtype=object), [{"start": 0}, None]),
        (("a", np.int64(1)), ["a", 1]),
    ],
)
def test_values_within_values_are_those_of_python(value: Any, expected: Any, tmp_path: Path) -> None:
    """As a DataFrame has them after it read a Parquet file, and decimal numbers."""
    assert written([("a", value)], tmp_path / "rows.jsonl") == [{"text": "a", "label": expected}]


def test_half_a_character_is_refused_by_the_reader(tmp_path: Path) -> None:
    """With its row, and not when the rows are written."""
    path = write_rows([("a", "b"), ("\ud800", "c")], tmp_path / "rows.jsonl", COLUMNS)
    with pytest.raises(TrainingError, match=r"rows\.jsonl:2 is not UTF-8 text"):
        read_examples(path, ("text",), "label")


def test_a_file_is_used_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name may be relative to the current directory."""
    monkeypatch.chdir(tmp_path)
    assert write_rows("rows.csv", tmp_path / "unused", COLUMNS) == tmp_path / "rows.csv"
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(
    ("examples", "sentence"),
    [
        (3, "the examples are a int; give a DataFrame, a Dataset, a list of rows or the name of a file"),
        ({"text": ["a"]}, "the examples are a dict; give a DataFrame"),
        ([("a", "b", "c")], "example 1 is ('a', 'b', 'c'); it must be a mapping, or a tuple of text, label"),
        ([ROWS[0], "a"], "example 2 is 'a'; it must be a mapping"),
        ([{"text": date(2026, 1, 2), "label": 1}], "example 1 has datetime.date(2026, 1, 2) as 'text'; a value must"),
    ],
)
def test_other_examples_are_refused(examples: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingError) as raised:
        write_rows(examples, tmp_path / "rows.jsonl", COLUMNS)
    assert str(raised.value).startswith(sentence)


# The kinds of rows are tested quickly above; this needs pandas, polars and datasets.
@pytest.mark.slow
def test_frames_of_other_libraries_are_read(tmp_path: Path) -> None:
    """A DataFrame of pandas and of polars and a Dataset have the same rows."""
    path = os.pathsep.join([str(installed("frames")), *sys.path])
    command = [sys.executable, "-W", "ignore", "-c", FRAMES, str(tmp_path / "rows.jsonl")]
    environment = os.environ | {"PYTHONPATH": path, "HF_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    expected = [{"text": "é", "label": 1, "score": 0.5}, {"text": "b", "label": 2, "score": None}]
    for text in json.loads(done.stdout):
        assert [json.loads(line) for line in text.splitlines()] == expected
