"""Jobs as tasks of Ray, on an existing cluster or on a local one that ends with the program."""

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
from peltier_training.executor.executor import Failure, Job, Work


@contextmanager
def open_cluster(device: str, workers: int | None) -> Iterator["RayExecutor"]:
    """The cluster at RAY_ADDRESS, or a new one that only this machine can reach."""
    try:
        join_cluster(workers or usable_cores(), log_to_driver=False)
    except RuntimeError as error:
        raise TrainingError(str(error)) from None
    try:
        yield RayExecutor(device, workers)
    finally:
        ray.shutdown()


class RayExecutor:
    """Does jobs on the open cluster, each in a process with one core and, if there are any, one GPU."""

    def __init__(self, device: str, workers: int | None) -> None:
        found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        num_gpus = 0 if device == "cpu" else int(found.get("GPU", 0))
        if device == "cuda" and not num_gpus:
            raise TrainingError("device is 'cuda', but Ray's cluster has no GPU")
        room = num_gpus or int(found["CPU"])
        self.width = min(workers or room, room)
        # Each process does one job, so that its peak of memory is the job's.
        self._task: Any = ray.remote(num_cpus=1, num_gpus=min(num_gpus, 1), max_calls=1, max_retries=0)(_run)

    def run(self, work: Work, jobs: Sequence[Job]) -> Iterator[tuple[Job, Any]]:
        """As `Executor`."""
        waiting, running = deque(jobs), dict[Any, Job]()
        try:
            while waiting or running:
                while waiting and len(running) < self.width:
                    job = waiting.popleft()
                    running[self._task.remote(work, job, Path.cwd())] = job
                ready = ray.wait([*running])[0][0]
                yield running.pop(ready), _result(ready)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _run(work: Work, job: Any, place: Path) -> Any:
    """Do a job in the working directory `place`, because its paths may be relative."""
    os.chdir(place)
    sent: list[Any] = []
    work(job, sent.append)
    return sent[-1]


def _result(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except RayError as error:
        reason = str(error).partition("\n")[0]
        return Failure(f"its process ended before it had a result: {reason}")
