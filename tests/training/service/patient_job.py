"""Processes of trainings that wait for the test, so that none is at its end before the test has done its part."""

import time
from collections.abc import Callable
from pathlib import Path

from peltier_training.service import job as module
from peltier_training.service.child import Completed, Message, Refused, Saved, TrainingJob

# A file in the directory of a job, which lets it go on to the next wait.
GO = "go"
_PAUSE_SECONDS = 0.02


def work_by_checkpoints(job: TrainingJob, send: Callable[[Message], None]) -> None:
    """In place of `child._work`: a job that waits after each checkpoint."""
    train_job = module.train_job

    def patiently(job: TrainingJob, send: Callable[[Message], None]) -> Completed | Refused:
        def tell(message: Message) -> None:
            send(message)
            if isinstance(message, Saved):
                _wait_for(job.directory / GO)

        return train_job(job, tell)

    module.train_job = patiently
    module.run_job(job, send)


def _wait_for(go: Path) -> None:
    while not go.exists():
        time.sleep(_PAUSE_SECONDS)
    go.unlink()
