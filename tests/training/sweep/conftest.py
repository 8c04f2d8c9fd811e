"""Trials that nobody has to run, and what came of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peltier_training.run import Data, Hyperparameters, Run
from peltier_training.sweep.trial import Outcome, Result, Trial

MakeTrial = Callable[..., Trial]
MakeEntry = Callable[..., tuple[Trial, Result]]


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

    def make(score: float = 0.5, failure: str | None = None, **trial: Any) -> tuple[Trial, Result]:
        made = make_trial(**trial)
        if failure is not None:
            return made, Result.create(made, Outcome(failure=failure))
        found = Outcome(
            metrics={made.run.metric: score, "f1_macro": 0.0},
            rows=made.size or 1000,
            seconds=2.0,
            seconds_per_epoch=0.25,
            memory_bytes=3 * 2**20,
        )
        return made, Result.create(made, found)

    return make
