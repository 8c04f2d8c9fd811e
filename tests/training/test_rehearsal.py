"""What an artifact may not have is refused before the first step, and what it may is delivered."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from peltier_backbone.backbone import Backbone
from peltier_training.config.run import Run
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
    with pytest.raises(TrainingError) as refused:
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
