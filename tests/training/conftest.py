"""Toy tasks over the words of the small backbones, and a maker of runs on them."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from peltier_backbone.backbone import Backbone
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.data.data import Data
from peltier_training.report import plots

MakeRun = Callable[..., Run]

_FILLERS = ("a", "film", "the", "plot", "is", "very", "actor", "and")
_TAGS = {"good": "B-praise", "very": "B-praise", "film": "I-praise", "actor": "B-who"}
_LABELS: dict[str, Callable[[list[str]], Any]] = {
    "classification": lambda words: "positive" if "good" in words else "negative",
    "multilabel": lambda words: [word for word in ("actor", "film", "plot") if word in words],
    "regression": lambda words: words.count("good") - words.count("bad") + 0.25,
    "text2text": lambda words: "a very good film" if "good" in words else "bad",
    "token-classification": lambda words: [_TAGS.get(word, "O") for word in words],
}


def _rows(task_type: str, count: int, seed: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    if task_type == "ranking":
        return _ranked_rows(draw, count)
    rows = []
    for _ in range(count):
        words = [*draw.choices(_FILLERS, k=draw.randint(1, 6)), draw.choice(("good", "bad"))]
        draw.shuffle(words)
        text = words if task_type == "token-classification" else " ".join(words)
        rows.append({"text": text, "label": _LABELS[task_type](words)})
    return rows


def _ranked_rows(draw: random.Random, count: int) -> list[dict[str, Any]]:
    """Four documents for each query, of which one is good."""
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        query = " ".join(draw.choices(_FILLERS, k=4))
        for word in draw.sample(["good", "bad", "bad", "bad"], 4):
            document = [word, *draw.choices(_FILLERS, k=draw.randint(1, 4))]
            rows.append({"query": query, "text": " ".join(document), "label": int(word == "good")})
    return rows


def _write(path: Path, rows: Sequence[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(autouse=True)
def _plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have plots without content, because matplotlib takes half of the time of a small training. The tests in
    `report/`, and those of trainings in other processes, draw."""
    monkeypatch.setattr(plots, "to_svg", lambda figure: "<svg></svg>")


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with TASK_TYPE-train.jsonl (48 rows) and TASK_TYPE-validation.jsonl (20 rows)."""
    directory = tmp_path_factory.mktemp("toy")
    for task_type in (*_LABELS, "ranking"):
        _write(directory / f"{task_type}-train.jsonl", _rows(task_type, 48, seed=1))
        _write(directory / f"{task_type}-validation.jsonl", _rows(task_type, 20, seed=2))
    return directory


@pytest.fixture
def make_run(toy: Path, bert: Backbone, tmp_path: Path) -> MakeRun:
    """`make_run(task_type, preset, …) -> Run`; keywords are fields of `Run` or of `Hyperparameters`."""

    def make(task_type: str = "classification", preset: str = "compacter", **changes: Any) -> Run:
        files = [toy / f"{task_type}-{part}.jsonl" for part in ("train", "validation")]
        given = {field.name for field in fields(Hyperparameters)} & changes.keys()
        numbers = {"epochs": 2, "batch_size": 16, "max_length": 32} | {name: changes.pop(name) for name in given}
        columns = ("query", "text") if task_type == "ranking" else ("text",)
        own: dict[str, Any] = {
            "task": "toy", "backbone": bert.name, "data": Data(*files, columns, "label"), "device": "cpu",
            "output": tmp_path / "toy.safetensors", "directory": tmp_path / "run",
        }  # fmt: skip
        own |= {"task_type": task_type, "preset": preset, "hyperparameters": Hyperparameters(**numbers)}
        return Run(**(own | changes))

    return make
