"""Toy tasks over the words of the small backbones, a maker of runs on them, and trainings that tests share."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import pytest
from peltier_adapters.artifact.artifact import Artifact, load_artifact
from peltier_adapters.artifact.manifest import Manifest
from peltier_adapters.golden.golden import check_golden
from peltier_backbone.backbone import Backbone
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.data.data import Data
from peltier_training.data.examples import Example, read_examples
from peltier_training.report import plots
from peltier_training.report.report import Report
from peltier_training.train import train
from transformers import TrainerState
from transformers.utils.logging import warning_once

from tests.client.typed_commands import Peltier

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


def write_data(path: Path, rows: Sequence[Any], columns: tuple[str, ...] = ("text",), label: str = "label") -> Data:
    """The rows as a file for training and validation."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Data(path, path, columns, label)


@pytest.fixture
def peltier(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Peltier:
    """`peltier(words…)` runs the command in this process."""
    return Peltier(monkeypatch, capsys)


def leave_out_plots(patch: pytest.MonkeyPatch) -> None:
    """Reports have plots without content, because matplotlib takes a third of the time of a small training."""
    for name in [name for name in vars(plots) if name.endswith("_svg")]:
        patch.setattr(plots, name, lambda *_: "<svg></svg>")


@pytest.fixture(autouse=True)
def _plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests in `report/`, and those of trainings in other processes, draw."""
    leave_out_plots(monkeypatch)


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with TASK_TYPE-train.jsonl (48 rows) and TASK_TYPE-validation.jsonl (20 rows)."""
    directory = tmp_path_factory.mktemp("toy")
    for task_type in (*_LABELS, "ranking"):
        write_data(directory / f"{task_type}-train.jsonl", _rows(task_type, 48, seed=1))
        write_data(directory / f"{task_type}-validation.jsonl", _rows(task_type, 20, seed=2))
    return directory


def create_run(toy: Path, folder: Path, backbone: str, task_type: str, preset: str, **changes: Any) -> Run:
    """A short run on a toy task that writes into `folder`; `changes` are fields of `Run` or of `Hyperparameters`."""
    files = [toy / f"{task_type}-{part}.jsonl" for part in ("train", "validation")]
    given = {field.name for field in fields(Hyperparameters)} & changes.keys()
    numbers = {"epochs": 2, "batch_size": 16, "max_length": 32} | {name: changes.pop(name) for name in given}
    columns = ("query", "text") if task_type == "ranking" else ("text",)
    own: dict[str, Any] = {
        "task": "toy", "backbone": backbone, "data": Data(*files, columns, "label"), "device": "cpu",
        "output": folder / "toy.safetensors", "directory": folder / "run", "writes_events": False,
    }  # fmt: skip
    own |= {"task_type": task_type, "preset": preset, "hyperparameters": Hyperparameters(**numbers)}
    return Run(**(own | changes))


@pytest.fixture
def make_run(toy: Path, bert: Backbone, tmp_path: Path) -> MakeRun:
    """`make_run(task_type, preset, …) -> Run` on the small BERT; keywords as in `create_run`."""

    def make(task_type: str = "classification", preset: str = "compacter", **changes: Any) -> Run:
        return create_run(toy, tmp_path, **{"backbone": bert.name} | changes, task_type=task_type, preset=preset)

    return make


def logged(run: Run) -> list[dict[str, float]]:
    """The log of a run, as its newest checkpoint has it."""
    states = run.directory.glob("checkpoint-*/trainer_state.json")
    newest = max(states, key=lambda path: int(path.parent.name.removeprefix("checkpoint-")))
    return TrainerState.load_from_json(str(newest)).log_history


def keep_checkpoints(folder: Path) -> Callable[..., None]:
    """A callback's `on_save` that copies each checkpoint to `folder`; a run removes all but the newest and the best."""

    def on_save(_: object, args: Any, state: TrainerState, control: Any, **__: Any) -> None:
        name = f"checkpoint-{state.global_step}"
        shutil.copytree(Path(args.output_dir) / name, folder / name, dirs_exist_ok=True)

    return on_save


def scores(run: Run, name: str) -> list[float]:
    """A metric of each epoch."""
    return [entry[f"eval_{name}"] for entry in logged(run) if f"eval_{name}" in entry]


def proved(run: Run, backbone: Backbone) -> Artifact:
    """The run's artifact, accepted as a server accepts it."""
    artifact = load_artifact(run.output, backbone)
    assert check_golden(backbone, artifact) == []
    return artifact


@dataclass(frozen=True)
class Trained:
    """A finished run, which tests only read, with a backbone that was loaded before it. `out` and `err` are what it
    wrote to the standard streams; a baseline has no manifest."""

    run: Run
    backbone: Backbone
    report: Report
    manifest: Manifest | None
    out: str
    err: str

    @cached_property
    def artifact(self) -> Artifact:
        return proved(self.run, self.backbone)

    @cached_property
    def validation(self) -> list[Example]:
        return read_examples(self.run.data.validation, self.run.data.text_columns, "label")


Train = Callable[..., Trained]


@pytest.fixture(scope="session")
def _trainings() -> dict[str, Trained]:
    return {}


@pytest.fixture
def trained(request, toy, tmp_path_factory, _trainings) -> Train:
    """`trained(family, task_type, preset, …) -> Trained`; keywords as in `create_run`. Tests with the same arguments
    share one training. With `after` it resumes from the checkpoints of that training."""

    def make(family="bert", task_type="classification", preset="compacter", after=None, **changes) -> Trained:
        key = repr((family, task_type, preset, after and after.run.directory, sorted(changes.items())))
        if key not in _trainings:
            backbone: Backbone = request.getfixturevalue(family)
            folder = tmp_path_factory.mktemp("trained")
            run = create_run(toy, folder, backbone.name, task_type, preset, resume=after is not None, **changes)
            if after is not None:
                shutil.copytree(after.run.directory, run.directory)
            _trainings[key] = _train(run, backbone, folder)
        return _trainings[key]

    return make


# An AdaMix that is small, with settings that are not the defaults.
MIXTURE = {"bottleneck": "8", "experts": "2", "share": "down", "consistency": "0.5"}

# A Compacter whose seed, decay and warm-up are not the defaults.
COMPACTER = {"seed": 7, "weight_decay": 0.1, "warmup": 0.5, "overrides": {"bottleneck": "8"}}


@pytest.fixture
def compacter(trained: Train) -> Trained:
    """Two epochs with these settings."""
    return trained(**COMPACTER)


@pytest.fixture
def once(trained: Train) -> Trained:
    """A Compacter of one epoch."""
    return trained(epochs=1)


@pytest.fixture
def twice(trained: Train, once: Trained) -> Trained:
    """The same, resumed for a second epoch."""
    return trained(epochs=2, after=once)


def _train(run: Run, backbone: Backbone, folder: Path) -> Trained:
    warning_once.cache_clear()  # so that it does not matter what an earlier training has said
    with pytest.MonkeyPatch.context() as patch, (folder / "out").open("w+") as out, (folder / "err").open("w+") as err:
        leave_out_plots(patch)
        with _streams_to(out, err):
            result = train(run)
        said = [(file.seek(0), file.read())[1] for file in (out, err)]
    return Trained(run, backbone, result.report, result.manifest, *said)


@contextmanager
def _streams_to(out: IO[str], err: IO[str]) -> Iterator[None]:
    """Writes both standard streams to files, also what is not written by Python."""
    kept = [(stream, os.dup(stream)) for stream in (1, 2)]
    with redirect_stdout(out), redirect_stderr(err):
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        try:
            yield
        finally:
            for stream, copy in kept:
                os.dup2(copy, stream)
                os.close(copy)
