"""Trials as tasks of Ray, on an existing cluster or on a local one that ends with the sweep."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from peltier_backbone.machine.cores import usable_cores
from peltier_backbone.machine.ray_cluster import join_cluster
from ray.exceptions import RayError

from peltier_training.errors import TrainingError
from peltier_training.sweep.trial import Trial, TrialOutcome
from peltier_training.sweep.worker import run_alone


@contextmanager
def open_cluster(device: str, workers: int | None) -> Iterator["RayRunner"]:
    """The cluster at RAY_ADDRESS, or a new one that only this machine can reach."""
    try:
        join_cluster(workers or usable_cores(), log_to_driver=False)
    except RuntimeError as error:
        raise TrainingError(str(error)) from None
    try:
        yield RayRunner(device, workers)
    finally:
        ray.shutdown()


class RayRunner:
    """Runs trials on the open cluster, each in a separate process with one core and, if there are any, one GPU."""

    def __init__(self, device: str, workers: int | None) -> None:
        found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        num_gpus = 0 if device == "cpu" else int(found.get("GPU", 0))
        if device == "cuda" and not num_gpus:
            raise TrainingError("device is 'cuda', but Ray's cluster has no GPU")
        room = num_gpus or int(found["CPU"])
        self.width = min(workers or room, room)
        # Each process runs one trial, so that its peak of memory is the trial's.
        self._task: Any = ray.remote(num_cpus=1, num_gpus=min(num_gpus, 1), max_calls=1, max_retries=0)(_work)

    def run(self, trials: Sequence[Trial], folder: Path) -> Iterator[tuple[Trial, TrialOutcome]]:
        """Each trial when it ends. Closing the iterator ends the running trials."""
        waiting, running = deque(trials), dict[Any, Trial]()
        try:
            while waiting or running:
                while waiting and len(running) < self.width:
                    trial = waiting.popleft()
                    running[self._task.remote(trial, folder / trial.key, Path.cwd())] = trial
                ready = ray.wait([*running])[0][0]
                yield running.pop(ready), _outcome(ready)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _work(trial: Trial, directory: Path, place: Path) -> TrialOutcome:
    """Run a trial in the working directory `place`, because paths may be relative to the sweep's."""
    os.chdir(place)
    return run_alone(trial, directory)


def _outcome(reference: Any) -> TrialOutcome:
    try:
        found = ray.get(reference)
    except RayError as error:
        reason = str(error).partition("\n")[0]
        return TrialOutcome(failure=f"its process ended before it had a result: {reason}")
    assert isinstance(found, TrialOutcome)
    return found
