"""The processes of trainings, as their worker sees them: what it hands to them and what they tell. Imports no torch."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peltier_training.executor.executor import Died, ForkServer, Process
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


def _load(nothing: None, send: Callable[[Message], None]) -> None:
    """The work of a process that tells by its end that the imports are done."""


def _work(job: TrainingJob, send: Callable[[Message], None]) -> None:
    from peltier_training.service.job import run_job

    run_job(job, send)


class Children:
    """Starts the processes of trainings."""

    def __init__(self) -> None:
        self._server = ForkServer("peltier_training.service.job")

    async def ready(self) -> None:
        """Wait for the imports, which take seconds, so that they are not part of the first training's time."""
        process = await asyncio.to_thread(self._server.start, _load, None)
        await asyncio.to_thread(process.join)

    @asynccontextmanager
    async def start(self, job: TrainingJob) -> AsyncIterator[Process]:
        """The process of a job, which is killed at the end of the block. It tells a `Message`, at the end `Died`."""
        starting = asyncio.ensure_future(asyncio.to_thread(self._server.start, _work, job, folder=job.directory))
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.to_thread((await starting).end)
            raise
        try:
            yield process
        finally:
            await asyncio.shield(asyncio.to_thread(process.end))
