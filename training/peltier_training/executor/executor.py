"""Jobs in processes of their own: forked on this machine from one that has torch loaded, or beyond it tasks of Ray
(`ray_executor.py`). Imports no torch itself."""

import os
import shutil
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Protocol, TypeVar

from peltier_backbone.machine.cores import usable_cores
from peltier_backbone.machine.ray_cluster import set_variables

from peltier_training.errors import TrainingError

EXECUTORS = ("processes", "ray")
Job = TypeVar("Job")
# What a job does, given what it works on and what sends its messages. It can be pickled.
Work = Callable[[Any, Callable[[Any], None]], None]
# The status of a process is read from a pipe once: a thread that reads it second takes it for 255. The start of any
# process reads those of all others.
_status_lock = threading.Lock()


@dataclass(frozen=True)
class Died:
    """The process ended without a result."""

    exit_code: int

    @property
    def how(self) -> str:
        if self.exit_code < 0:
            return f"was killed by signal {-self.exit_code}"
        return f"ended with status {self.exit_code}"


class Process:
    """The process of a job."""

    def __init__(self, process: ForkServerProcess, channel: Connection) -> None:
        self._process, self._channel = process, channel
        with _status_lock:
            process.start()

    @property
    def signs(self) -> tuple[Connection, int]:
        """One of them is ready once there is something to read."""
        return self._channel, self._process.sentinel

    def read(self) -> Any:
        """Wait for what the job tells next, at the end `Died`. What it has told comes before its end."""
        try:
            if self._channel in wait(self.signs):
                return self._channel.recv()
        except (EOFError, OSError):
            pass
        return Died(self.join())

    def join(self) -> int:
        """Wait for the end; returns the status."""
        wait([self._process.sentinel])
        with _status_lock:
            self._process.join()
            return self._process.exitcode or 0

    def end(self) -> None:
        """Kill it, and wait for its end."""
        self._process.kill()
        self.join()


class ForkServer:
    """Starts processes by forking one that has `modules` loaded, because importing torch takes seconds."""

    def __init__(self, *modules: str) -> None:
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(["__main__", *modules])

    def start(self, work: Work, job: Any, *, folder: Path | None = None, device: str | None = None) -> Process:
        """Start the process of a job, on a CUDA `device` by its name if there is one. It ends with this process, and
        then removes the `folder`. Signals that the terminal sends to all processes are for this one."""
        receiver, sender = self._context.Pipe(duplex=False)
        try:
            return Process(self._context.Process(target=_run, args=(work, job, sender, folder, device)), receiver)
        finally:
            sender.close()


class Failure(str):
    """Why a job has no result, in one sentence."""


class Executor(Protocol):
    """Does jobs in parallel, `width` at a time."""

    @property
    def width(self) -> int: ...

    def run(self, work: Work, jobs: Sequence[Job]) -> Iterator[tuple[Job, Any]]:
        """Each job when it ends, with the message that it has sent, or the `Failure`. Closing the iterator ends the
        others."""
        ...


class LocalExecutor:
    """Does jobs on this machine, one at a time on each of `devices`: names of CUDA devices, or None."""

    def __init__(self, server: ForkServer, devices: Sequence[str | None]) -> None:
        self._server, self._devices = server, devices

    @property
    def width(self) -> int:
        return len(self._devices)

    def run(self, work: Work, jobs: Sequence[Job]) -> Iterator[tuple[Job, Any]]:
        waiting, free = deque(jobs), deque(self._devices)
        running = dict[Process, tuple[Job, str | None]]()
        try:
            while waiting or running:
                while waiting and free:
                    job, device = waiting.popleft(), free.popleft()
                    running[self._server.start(work, job, device=device)] = job, device
                ready = wait([sign for process in running for sign in process.signs])
                for process in [one for one in running if not set(one.signs).isdisjoint(ready)]:
                    found = process.read()
                    process.join()
                    job, device = running.pop(process)
                    free.append(device)
                    yield job, _failure(found.how) if isinstance(found, Died) else found
        finally:
            for process in running:
                process.end()


def _failure(how: str) -> Failure:
    return Failure(f"its process {how} before it had a result; memory may have run out")


@contextmanager
def open_executor(name: str, server: ForkServer, device: str, workers: int | None) -> Iterator[Executor]:
    """The executor called `name` for jobs on `device`, `workers` at a time or as many as there is room for: one for
    each GPU, or for each core without GPUs or on the CPU."""
    if workers is not None and workers < 1:
        raise TrainingError(f"workers is {workers}; it must be a number of at least 1")
    if name not in EXECUTORS:
        raise TrainingError(f"executor {name!r} is unknown; it is one of {', '.join(EXECUTORS)}")
    if name == "processes":
        yield LocalExecutor(server, find_devices(device, workers))
        return
    set_variables()
    try:
        from peltier_training.executor.ray_executor import open_cluster
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise TrainingError("executor 'ray' needs Ray: pip install \"peltier[training,ray]\"") from None
    with open_cluster(device, workers) as executor:
        yield executor


def find_devices(device: str, workers: int | None) -> Sequence[str | None]:
    """The device of each worker, as CUDA_VISIBLE_DEVICES names it."""
    gpus: list[str] = []
    if device != "cpu":
        import torch

        named, count = os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count()
        gpus = named.split(",")[:count] if named else [str(number) for number in range(count)]
    if device == "cuda" and not gpus:
        raise TrainingError("device is 'cuda', but torch sees no CUDA device")
    if not gpus:
        return [None] * (workers or usable_cores())
    return [gpus[number % len(gpus)] for number in range(workers or len(gpus))]


def _run(work: Work, job: Any, channel: Connection, folder: Path | None, device: str | None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    work(job, channel.send)


def _end_with_parent(folder: Path | None) -> None:
    parent = parent_process()
    assert parent is not None, "a fork server starts it"
    parent.join()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def write_output_to(path: Path) -> None:
    """Append the output of this process and its libraries, progress bars included, to a file."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)
