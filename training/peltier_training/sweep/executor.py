"""Executors of trials: Ray, or local processes that are forked from one with torch loaded."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Protocol

import torch
from peltier_backbone.machine.cores import usable_cores
from peltier_backbone.machine.ray_cluster import set_variables

from peltier_training.errors import TrainingError
from peltier_training.sweep.trial import Trial, TrialOutcome
from peltier_training.sweep.worker import work

_GRACE_SECONDS = 5.0
EXECUTORS = ("processes", "ray")


@dataclass(frozen=True)
class TrialPlaces:
    """The places for parallel trials: for each worker its CUDA device, or None."""

    devices: tuple[str | None, ...]

    @classmethod
    def find(cls, device: str, workers: int | None) -> "TrialPlaces":
        """`workers` places; by default one per GPU, or one per core without GPUs or on the CPU."""
        gpus = [] if device == "cpu" else _gpus()
        if device == "cuda" and not gpus:
            raise TrainingError("device is 'cuda', but torch sees no CUDA device")
        if not gpus:
            return cls((None,) * (workers or usable_cores()))
        return cls(tuple(gpus[number % len(gpus)] for number in range(workers or len(gpus))))


def _gpus() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return named.split(",")[:count] if named else [str(number) for number in range(count)]


@dataclass(frozen=True)
class _Job:
    trial: Trial
    device: str | None
    process: ForkServerProcess
    channel: Connection

    def outcome(self) -> TrialOutcome:
        """The outcome of a process that has sent it or ended. It is read first, because the process waits for that."""
        try:
            found = self.channel.recv() if self.channel.poll() else None
        except EOFError:
            found = None
        self.channel.close()
        self.process.join()
        if isinstance(found, TrialOutcome):
            return found
        code = self.process.exitcode or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        return TrialOutcome(failure=f"its process {how} before it had a result; memory may have run out")


class ProcessRunner:
    """Runs trials at all `places` at once."""

    def __init__(self, places: TrialPlaces) -> None:
        self._places = places
        self._context = get_context("forkserver")
        # Importing torch takes longer than a small trial; forked processes have it loaded.
        self._context.set_forkserver_preload(["__main__", "peltier_training.sweep.worker"])

    @property
    def width(self) -> int:
        return len(self._places.devices)

    def run(self, trials: Sequence[Trial], folder: Path) -> Iterator[tuple[Trial, TrialOutcome]]:
        """Each trial when it ends. Closing the iterator ends the running trials."""
        waiting, free = deque(trials), deque(self._places.devices)
        running: list[_Job] = []
        try:
            while waiting or running:
                while waiting and free:
                    running.append(self._start(waiting.popleft(), folder, free.popleft()))
                ready = wait([end for job in running for end in (job.channel, job.process.sentinel)])
                for job in [job for job in running if job.channel in ready or job.process.sentinel in ready]:
                    running.remove(job)
                    free.append(job.device)
                    yield job.trial, job.outcome()
        finally:
            _end(running)

    def _start(self, trial: Trial, folder: Path, device: str | None) -> _Job:
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=work, args=(trial, folder / trial.key, device, sender))
        process.start()
        sender.close()
        return _Job(trial, device, process, receiver)


def _end(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        job.process.terminate()
    for job in jobs:
        job.process.join(_GRACE_SECONDS)
        if job.process.is_alive():
            job.process.kill()
            job.process.join()
        job.channel.close()


class Executor(Protocol):
    """Runs trials in parallel, `width` at a time."""

    @property
    def width(self) -> int: ...

    def run(self, trials: Sequence[Trial], folder: Path) -> Iterator[tuple[Trial, TrialOutcome]]:
        """Each trial when it ends, with its files in `folder`/KEY. Closing the iterator ends the running trials."""
        ...


@contextmanager
def open_executor(name: str, device: str, workers: int | None) -> Iterator[Executor]:
    """The executor called `name` for trials on `device`, `workers` at a time or as many as the machine has room for."""
    if workers is not None and workers < 1:
        raise TrainingError(f"workers is {workers}; it must be a number of at least 1")
    if name not in EXECUTORS:
        raise TrainingError(f"executor {name!r} is unknown; it is one of {', '.join(EXECUTORS)}")
    if name == "processes":
        yield ProcessRunner(TrialPlaces.find(device, workers))
        return
    set_variables()
    try:
        from peltier_training.sweep.ray_runner import open_cluster
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise TrainingError("executor 'ray' needs Ray: pip install \"peltier[training,ray]\"") from None
    with open_cluster(device, workers) as runner:
        yield runner
