"""Processes of trainings that wait for the test, so that none is at its end before the test has done its part."""

import time
from collections.abc import Callable
from pathlib import Path

from peltier_training.service import job as module
from peltier_training.service.messages import Delivered, Message, Refused, Saved, TrainingJob

# A file in the directory of a job, which lets it go on to the next wait.
GO = "go"
_PAUSE_SECONDS = 0.02


def work_by_checkpoints(job: TrainingJob, send: Callable[[Message], None]) -> None:
    """In place of `child._work`: a job that waits after each checkpoint."""
    conclude = module.conclude

    def patiently(job: TrainingJob, send: Callable[[Message], None]) -> Delivered | Refused:
        def tell(message: Message) -> None:
            send(message)
            if isinstance(message, Saved):
                _wait_for(job.directory / GO)

        return conclude(job, tell)

    module.conclude = patiently
    module.run_job(job, send)


def _wait_for(go: Path) -> None:
    while not go.exists():
        time.sleep(_PAUSE_SECONDS)
    go.unlink()
