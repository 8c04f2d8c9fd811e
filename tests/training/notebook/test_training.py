"""`peltier.train` and what it returns."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import peltier
import pytest
from peltier_adapters.errors import ArtifactError
from peltier_backbone.backbone import Backbone
from peltier_training.errors import TrainingError

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


def test_an_adapter_answers_as_its_artifact_does(
    adapter: peltier.Adapter, bert: Backbone, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
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
    """The accuracy is the share of right labels."""
    labels = [answer["label"] for answer in adapter.predict([row["text"] for row in rows])]
    right = sum(label == row["label"] for label, row in zip(labels, rows, strict=True))
    assert adapter.evaluate(rows)["accuracy"] == pytest.approx(right / len(rows))


@pytest.mark.slow
def test_it_is_published_on_a_server(
    adapter: peltier.Adapter, bert: Backbone, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    """As the next version, with its report, and live under the alias."""
    server = Server(tmp_path / "log", "--backbone", bert.name, "--store", str(tmp_path / "store"))
    try:
        url = server.wait_until_ready().url
        published = [adapter.publish(url, name=name, alias="production") for name in ("toy", "other")]
        assert [(one.name, one.version) for one in published] == [("toy", 1), ("other", 1)]
        stored = server.client.get("/v1/adapters/toy/versions/1/report").json()["report"]
        assert adapter.report is not None
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


def test_the_same_examples_give_the_same_adapter(
    rows: list[dict[str, Any]], toy: Path, bert: Backbone, adapter: peltier.Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_examples_are_checked_first(
    adapter: peltier.Adapter, limited: peltier.Adapter, rows: list[dict[str, Any]]
) -> None:
    """The pre-flight report is kept; validation examples are those that are given."""
    assert adapter.preflight is not None
    assert adapter.preflight["rows"]["train"] + adapter.preflight["rows"]["validation"] == len(rows)
    assert limited.preflight is not None
    assert limited.preflight["rows"] == {"train": 32, "validation": len(rows) - 32}
    assert limited.report is not None
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
def test_a_mistake_is_one_sentence(
    changes: dict[str, Any], sentence: str, rows: list[dict[str, Any]], bert: Backbone
) -> None:
    """As on the command line and at the server."""
    given = {"task": "toy", "backbone": bert.name, "device": "cpu"} | changes
    with pytest.raises(Exception, match=sentence) as raised:
        peltier.train(rows, **given)
    assert getattr(raised.value, "is_user_error", False)


def test_inputs_are_a_list(adapter: peltier.Adapter) -> None:
    """One text would be taken for its letters."""
    with pytest.raises(TrainingError, match=r"^the inputs are one text; give a list of inputs$"):
        adapter.predict("a film")


def test_another_backbone_is_refused(adapter: peltier.Adapter, roberta: Backbone, tmp_path: Path) -> None:
    """With every reason, as at a server."""
    path = adapter.save(tmp_path / "toy.safetensors")
    with pytest.raises(ArtifactError):
        peltier.load(path, backbone=roberta.name, device="cpu")


def test_a_budget_of_steps_ends_a_training(adapter: peltier.Adapter, limited: peltier.Adapter) -> None:
    """The report has the reason, and the rate that the multiplier gives."""
    whole, half = (json.loads(one.report) for one in (adapter, limited))
    assert half["resolved"]["steps"] == 4
    rates = [one["training"]["hyperparameters"]["learning_rate"] for one in (whole, half)]
    assert rates[1] == pytest.approx(rates[0] / 2)


def test_a_budget_of_steps_and_minutes_is_refused(rows: list[dict[str, Any]], bert: Backbone) -> None:
    """As the service refuses it."""
    with pytest.raises(TrainingError, match="the budget has steps and minutes; it has one of them"):
        peltier.train(rows, task="toy", budget={"steps": 4, "minutes": 1}, backbone=bert.name, device="cpu")


def test_a_lora_on_a_t5_answers_the_names_of_labels(rows: list[dict[str, Any]], t5: Backbone) -> None:
    """With maps beside them."""
    settings = SETTINGS | {"targets": "query,value", "label_targets": "words"}
    adapter = train(rows[:24], t5, settings=settings, budget={"steps": 2})
    assert adapter.manifest.task.targets == adapter.manifest.task.labels == ("negative", "positive")
    assert adapter.manifest.training.hyperparameters["settings"]["targets"] == "query,value"


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


def test_rows_that_cannot_be_used_are_named_without_a_folder_or_a_flag(
    adapter: peltier.Adapter, bert: Backbone
) -> None:
    """The file of the rows is a temporary one, and a flag is of the command line."""
    rows = [("good", "yes"), ("bad", None), ("", "no")]
    first, second = r"examples\.jsonl:2: label None .* a number", r"examples\.jsonl:3: column 'text' is ''; .* text"
    with pytest.raises(TrainingError, match=rf"^2 rows cannot be used: {first}; {second}$"):
        train(rows, bert)
    with pytest.raises(TrainingError, match=r"^validation\.jsonl:1: label None .* a number$"):
        train([("good", "yes"), ("bad", "no")], bert, validation=[("good", None)])
    with pytest.raises(TrainingError, match=r"^examples\.jsonl:1: label None .* a number$"):
        adapter.evaluate([("good", None)])
