"""Trials that nobody has to run, and sweeps that are small enough to run."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from peltier_backbone.backbone import Backbone
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.data.data import Data
from peltier_training.executor.executor import ForkServer, LocalExecutor
from peltier_training.sweep.description import create_description
from peltier_training.sweep.grid import Grid
from peltier_training.sweep.sweep import Sweep
from peltier_training.sweep.trial import Trial, TrialOutcome, TrialResult
from peltier_training.sweep.worker import run_trial

MakeTrial = Callable[..., Trial]
Entry = tuple[Trial, TrialResult]
MakeEntry = Callable[..., Entry]
MakeSweep = Callable[..., Sweep]
Tables = dict[str, Any]


@pytest.fixture
def make_trial() -> MakeTrial:
    """`make_trial(task, method, size, seed, axes, …) -> Trial`; other keywords are fields of `Run`."""

    def make(
        task: str = "toy", method: str = "compacter", size: int | None = None, seed: int = 0, dev_rows: int = 0,
        axes: dict[str, str] | None = None, evidence: dict[str, Any] | None = None, parameters: int = 10, **run: Any
    ) -> Trial:  # fmt: skip
        own: dict[str, Any] = {
            "task": task, "task_type": "classification", "preset": "compacter", "backbone": "minilm",
            "data": Data(Path("train.jsonl"), Path("validation.jsonl"), ("text",), "label"),
            "output": Path("out.safetensors"), "directory": Path("out"), "hyperparameters": Hyperparameters(seed=seed),
        }  # fmt: skip
        proof = {"train": "1", "validation": "2", "backbone": "3", "settings": {}} | (evidence or {})
        return Trial(Run(**(own | run)), method, size, dev_rows, axes or {}, proof, parameters)

    return make


@pytest.fixture
def make_entry(make_trial: MakeTrial) -> MakeEntry:
    """`make_entry(score, failure=…, …)`: a trial of `make_trial` and its result."""

    def make(score: float = 0.5, failure: str | None = None, **trial: Any) -> tuple[Trial, TrialResult]:
        made = make_trial(**trial)
        if failure is not None:
            return made, TrialResult.create(made, TrialOutcome(failure=failure))
        found = TrialOutcome(
            metrics={made.run.metric: score, "f1_macro": 0.0},
            rows=made.size or 1000,
            seconds=2.0,
            seconds_per_epoch=0.25,
            memory_bytes=3 * 2**20,
        )
        return made, TrialResult.create(made, found)

    return make


@pytest.fixture
def tables(toy: Path, bert: Backbone) -> Tables:
    """A small sweep as its file would have it: one task, one method, two seeds, on the small BERT."""
    data = {part: str(toy / f"classification-{part}.jsonl") for part in ("train", "validation")}
    return {
        "backbone": bert.name,
        "device": "cpu",
        "seeds": [0, 1],
        "sizes": {"16": {}},
        "common": {"epochs": 1, "batch_size": 8, "warmup": 0.0, "max_length": 32, "learning_rate": 0.05},
        "tasks": {"toy": data},
        "methods": {"lora": {}},
    }


class InThisProcess:
    """Runs trials one after the other, without a process for each, whose imports take ten seconds of a core."""

    width = 1

    def run(self, work: Any, jobs: Sequence[tuple[Trial, Path]]) -> Iterator[tuple[tuple[Trial, Path], TrialOutcome]]:
        for trial, folder in jobs:
            folder.mkdir(parents=True)
            yield (trial, folder), run_trial(trial, folder)


@pytest.fixture
def make_sweep(tmp_path: Path) -> MakeSweep:
    """`make_sweep(tables, folder, workers) -> Sweep`, every trial checked. Without `workers` its trials run in this
    process."""

    def make(tables: Tables, folder: str = "out", workers: int | None = None) -> Sweep:
        output = tmp_path / folder
        trials = Grid(create_description(tables), tmp_path, output).trials()
        executor = (
            InThisProcess()
            if workers is None
            else LocalExecutor(ForkServer("peltier_training.sweep.worker"), [None] * workers)
        )
        return Sweep(trials, output, executor)

    return make
