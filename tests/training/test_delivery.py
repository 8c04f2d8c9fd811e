"""What an artifact may not have is refused before the first step, and what it may is delivered."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.errors import AdapterError
from peltier_backbone.backbone import Backbone
from peltier_training.config.run import Run
from peltier_training.config.task_options import TextOptions
from peltier_training.data.data import Data
from peltier_training.errors import TrainingError
from peltier_training.train import train
from transformers import Trainer

from tests.training.conftest import MakeRun, proved


@pytest.fixture
def no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run may begin to train."""

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("a step was begun")

    monkeypatch.setattr(Trainer, "train", fail)


def write(path: Path, rows: Sequence[tuple[Any, Any]]) -> Data:
    """A file of rows, for training and validation."""
    path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    return Data(path, path)


def refusal(run: Run) -> str:
    with pytest.raises((TrainingError, AdapterError)) as refused:
        train(run)
    return str(refused.value)


@pytest.mark.usefixtures("no_step")
def test_the_name_of_a_backbone_is_visible(make_run: MakeRun, bert: Backbone, tmp_path: Path):
    """It is that of a folder, and an artifact has it."""
    (tmp_path / "bert\u202e").symlink_to(bert.name)
    told = refusal(make_run(backbone=str(tmp_path / "bert\u202e")))
    assert told.startswith("no server would take the adapter: manifest as a whole: backbone name is ")


@pytest.mark.usefixtures("no_step")
def test_a_header_has_room_for_the_labels(make_run: MakeRun, tmp_path: Path):
    """Four thousand of the longest names are more than a header has."""
    names = [f"{number:04}" + "é" * 252 for number in range(4000)]
    told = refusal(make_run(data=write(tmp_path / "a.jsonl", [("good", name) for name in names])))
    assert "the header" in told


@pytest.mark.usefixtures("no_step")
def test_the_name_of_a_file_is_text(make_run: MakeRun, toy: Path, tmp_path: Path):
    """The name of a file of examples, which Linux does not check, is in it."""
    path = tmp_path / os.fsdecode(b"\xff.jsonl")
    path.write_bytes((toy / "classification-train.jsonl").read_bytes())
    assert refusal(make_run(data=Data(path, path))) == f"the name of {path} is not UTF-8 text; rename the file"


def test_many_tags_of_long_texts_are_delivered(make_run: MakeRun, bert: Backbone, tmp_path: Path):
    """The golden examples are shorter where a header has no room for the values of all tokens."""
    words = [["film"] * 79 + [str(number)] for number in range(8)]
    rows = [(own, [f"B-{(number * 80 + place) % 250}" for place in range(80)]) for number, own in enumerate(words)]
    run = make_run("token-classification", data=write(tmp_path / "a.jsonl", rows), max_length=90, epochs=1)
    train(run)
    assert proved(run, bert).manifest.task.labels[-1] == "I-99"


def test_long_texts_are_delivered(make_run: MakeRun, bert: Backbone, tmp_path: Path):
    """The golden examples have their beginnings, and not a megabyte each."""
    rows = [(f"{number} " + "фильм " * 30_000, "ab"[number % 2]) for number in range(6)]
    run = make_run(data=write(tmp_path / "a.jsonl", rows), epochs=1)
    train(run)
    assert len(proved(run, bert).manifest.golden) == 4


def _labels(names: Sequence[Any]) -> list[tuple[str, Any]]:
    return [(f"good {number}", name) for number, name in enumerate(names)]


REFUSED: list[tuple[str, dict[str, Any], list[tuple[Any, Any]], str]] = [
    ("bert", {}, _labels(["a", "good\n"]), "a.jsonl:2: label 'good\\n' contains the invisible character U+000A"),
    ("bert", {}, _labels(range(4097)), "there are 4,097 labels; a task has at most 4,096"),
    (
        "bert",
        {"task_type": "token-classification"},
        [(["film"], [f"B-{number}"]) for number in range(600)],
        "token-classification has at most 1,024 labels, not 1,201",
    ),
    ("bert", {"task_type": "token-classification", "stride": 20}, [(["film"], ["B-a"])], "stride is 20; it must be at"),
    ("bert", {"overrides": {"bottleneck": "0"}}, _labels("ab"), "size is 0: input should be greater"),
    ("t5", {"text": TextOptions(template="{text}" * 1000)}, _labels("ab"), "…': string should have at most 4096"),
    ("t5", {"text": TextOptions(template="{text} {pair}")}, _labels("ab"), "must name {text}"),
    ("t5", {"text": TextOptions(targets="good,good")}, _labels("ab"), "two targets are the same text"),
    ("t5", {"text": TextOptions(targets="good,bad,film")}, _labels("ab"), "there are 3 targets for 2 labels"),
    (
        "t5",
        {"text": TextOptions(targets="good, ")},
        _labels("ab"),
        "task targets is '': string should have at least 1 character",
    ),
    ("t5", {"text": TextOptions(targets=f"good,{'b' * 257}")}, _labels("ab"), "bbb…': string should have at most 256"),
    ("t5", {"task_type": "regression"}, _labels([0, 5000]), "steps of 0.2, more than 4096"),
    ("t5", {"task_type": "text2text"}, _labels(["good", " "]), "label ' ' is not a label"),
]


@pytest.mark.usefixtures("no_step")
@pytest.mark.parametrize(("family", "changes", "rows", "sentence"), REFUSED, ids=[row[-1] for row in REFUSED])
def test_what_an_artifact_refuses_is_refused_first(family, changes, rows, sentence, make_run, tmp_path, request):
    """Each rule of a manifest that examples or options can break, in one sentence."""
    backbone: Backbone = request.getfixturevalue(family)
    own = {"backbone": backbone.name, "preset": "lora" if family == "t5" else "compacter"} | changes
    told = refusal(make_run(data=write(tmp_path / "a.jsonl", rows), **own))
    assert sentence in told
    assert "\n" not in told
