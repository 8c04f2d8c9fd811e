"""One run of a sweep and its outcome."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from peltier_adapters.spec.maps import Spec
from pydantic import Field, FiniteFloat

from peltier_training.config.run import Run

_KEY_LEN = 16


@dataclass(frozen=True)
class Trial:
    """A point of the grid. `run` has the task's whole files; the run's seed draws `size` of their training rows (None
    for all) and `dev_rows` others. `axes` are the values that the grid varies, `evidence` has digests of the files and
    all settings, and `parameters` counts what the method adds, without the head."""

    run: Run
    method: str
    size: int | None
    dev_rows: int
    axes: Mapping[str, str]
    evidence: Mapping[str, Any]
    parameters: int

    @cached_property
    def key(self) -> str:
        """A digest of exactly the inputs that determine the outcome, without the versions of the code.

        Options that are None are excluded, so that new options do not change the keys of earlier trials.
        """
        run = self.run
        decided = {
            "task": run.task,
            "task_type": run.task_type,
            "preset": run.preset,
            "columns": [*run.data.text_columns, run.data.label_column],
            "labels": run.data.labels,
            **_given({"label_separator": run.data.label_separator, "skip_bad_rows": run.data.skip_bad_rows or None}),
            # It determines which rows are skipped.
            **_given({"labels_found": (run.data.skip_bad_rows and run.data.labels_found) or None}),
            "hyperparameters": _given(asdict(run.hyperparameters)),
            "text": _given(asdict(run.text)),
            **_given({"embedding": _given(asdict(run.embedding)) or None}),
            "device": run.device,
            "dtype": run.dtype,
            "merge_report": run.merge_report,
            "size": self.size,
            "dev_rows": self.dev_rows,
            **self.evidence,
        }
        return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()[:_KEY_LEN]

    @property
    def seed(self) -> int:
        return self.run.hyperparameters.seed

    @property
    def name(self) -> str:
        size = "" if self.size is None else f", {self.size} rows"
        axes = "".join(f", {name} {value}" for name, value in self.axes.items())
        return f"{self.run.task}, {self.method}{axes}{size}, seed {self.seed}"


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


class TrialOutcome(Spec):
    """The result of a trial: metrics and costs, or the failure in one sentence.

    `epochs` were trained, and `ended` is the reason for the end. `seconds` is the time of the whole trial.
    `seconds_per_epoch`, `memory_bytes` (the peak of the trial's process) and `device_memory_bytes` (of CUDA) cover
    training only."""

    metrics: dict[str, FiniteFloat] = Field(default_factory=dict)
    rows: int | None = None
    epochs: float | None = None
    ended: str | None = None
    seconds: float | None = None
    seconds_per_epoch: float | None = None
    memory_bytes: int | None = None
    device_memory_bytes: int | None = None
    failure: str | None = None


class TrialResult(TrialOutcome):
    """One line of the ledger: the trial and its outcome."""

    key: str
    task: str
    method: str
    preset: str
    size: int | None
    seed: int
    axes: dict[str, str]
    hyperparameters: dict[str, Any]
    settings: dict[str, Any]
    parameters: int

    @classmethod
    def create(cls, trial: Trial, outcome: TrialOutcome) -> "TrialResult":
        return cls(
            **outcome.model_dump(),
            key=trial.key,
            task=trial.run.task,
            method=trial.method,
            preset=trial.run.preset,
            size=trial.size,
            seed=trial.seed,
            axes=dict(trial.axes),
            hyperparameters=asdict(trial.run.hyperparameters) | {"metric": trial.run.metric},
            settings=dict(trial.evidence["settings"]),
            parameters=trial.parameters,
        )
