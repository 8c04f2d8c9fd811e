"""What a worker hands to the process of a training, and what that tells it. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peltier_training.executor.executor import Died
from peltier_training.service.request import Machine

# Files in a job's directory: its last checkpoint, and one by which the worker asks for another at the next step.
ARCHIVE = Path("checkpoint.tar")
ASKED = Path("save-now")


@dataclass(frozen=True)
class TrainingJob:
    """A training in `directory`, which has its files `train` and `validation` (None: a share of the other) and, if
    another process has begun it, the archive of its last checkpoint. `spent` is the time of earlier processes.
    `seconds_per_token` is a rate that was measured."""

    directory: Path
    request: Mapping[str, Any]
    train: Path
    validation: Path | None
    machine: Machine
    spent: float = 0.0
    seconds_per_token: float | None = None


@dataclass(frozen=True)
class Checked:
    """The pre-flight report, before the first step."""

    preflight: Mapping[str, Any]


@dataclass(frozen=True)
class Progressed:
    """The progress at a step; `is_validation` tells whether the step was just validated."""

    progress: Mapping[str, Any]
    is_validation: bool


@dataclass(frozen=True)
class Saved:
    """The job's `ARCHIVE` has the state after `step`."""

    step: int


@dataclass(frozen=True)
class Evaluating:
    """Training has ended; the best epoch is measured on all validation rows."""


@dataclass(frozen=True)
class Completed:
    """The artifact and its report, files in the job's directory. `seconds_per_token` was
    measured."""

    artifact: Path
    report: Path
    metrics: Mapping[str, float]
    seconds_per_token: float | None


@dataclass(frozen=True)
class Refused:
    """The training cannot be done, for a reason of one sentence. `trace` is the traceback of an error that is a bug."""

    reason: str
    trace: str | None = None


Message = Checked | Progressed | Saved | Evaluating | Completed | Refused | Died
