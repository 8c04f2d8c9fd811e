"""Jobs in processes of this machine, and who runs them by name."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import active_children, forkserver
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from peltier_backbone.machine.cores import usable_cores
from peltier_backbone.machine.ray_cluster import set_variables
from peltier_training.errors import TrainingError
from peltier_training.executor import executor
from peltier_training.executor.executor import (
    EXECUTORS,
    Died,
    Failure,
    ForkServer,
    LocalExecutor,
    find_devices,
    open_executor,
)

set_variables()  # before Ray is imported
ray_executor = pytest.importorskip("peltier_training.executor.ray_executor", exc_type=ImportError)
from ray.exceptions import WorkerCrashedError  # noqa: E402

Send = Callable[[Any], None]


@pytest.mark.parametrize("name", EXECUTORS)
def test_nobody_runs_nothing(name: str):
    """Workers are counted from one, whatever runs them."""
    with pytest.raises(TrainingError, match="workers is 0; it must be a number of at least 1"):
        open_executor(name, ForkServer(), "cpu", 0).__enter__()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    """As a sentence that says what to install."""
    monkeypatch.delitem(sys.modules, "peltier_training.executor.ray_executor", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(TrainingError, match=r"executor 'ray' needs Ray: pip install \"peltier\[training,ray\]\""):
        open_executor("ray", ForkServer(), "cpu", 1).__enter__()


def act(job: str, send: Send) -> None:
    """A short job: it dies, sends more than the 64 KiB that a pipe holds, or tells its device."""
    if job == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    send("x" * 200_000 if job == "tell" else os.environ.get("CUDA_VISIBLE_DEVICES"))


def test_a_job_ends_alone():
    """As the kernel kills what takes too much memory; the reason names the signal, and the other job has its result."""
    found = dict(LocalExecutor(ForkServer(), ["3"]).run(act, ["die", "tell", "device"]))
    assert found["die"] == "its process was killed by signal 9 before it had a result; memory may have run out"
    assert isinstance(found["die"], Failure)
    assert (len(found["tell"]), found["device"]) == (200_000, "3")


def test_jobs_that_run_end_with_their_executor():
    """As after Ctrl-C in the terminal, which is for the one that started them."""
    runs = LocalExecutor(ForkServer(), [None, None]).run(lasting, [0.0, 3600.0])
    assert next(runs) == (0.0, "done")
    (running,) = active_children()
    runs.close()
    assert not running.is_alive()


def lasting(job: float, send: Send) -> None:
    """Take so many seconds."""
    if job:
        signal.pause()
    send("done")


class WatchedLock:
    """A lock that tells once a second thread asks for it."""

    def __init__(self) -> None:
        self._lock, self.contested = threading.Lock(), threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.contested.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("meanwhile", ["wait", "start"])
def test_a_kill_is_told_as_a_kill(meanwhile: str, monkeypatch: pytest.MonkeyPatch):
    """Also if another thread waits for the process, or starts one, between the reading of the status and its use."""
    server, lock = ForkServer(), WatchedLock()
    process = server.start(lasting, 1.0)
    read_signed, was_read = forkserver.read_signed, threading.Event()

    def read_and_wait(descriptor: int) -> Any:
        found = read_signed(descriptor)
        if not was_read.is_set():
            was_read.set()
            lock.contested.wait()
        return found

    monkeypatch.setattr(forkserver, "read_signed", read_and_wait)
    monkeypatch.setattr(executor, "_status_lock", lock)
    found: list[int] = []
    others = []
    acts: dict[str, Callable[[], None]] = {
        "wait": lambda: found.append(process.join()),
        "start": lambda: others.append(server.start(lasting, 1.0)),
    }
    first, second = (threading.Thread(target=acts[name]) for name in ("wait", meanwhile))
    first.start()
    process._process.kill()
    was_read.wait()
    second.start()
    first.join()
    second.join()
    for other in others:
        other.end()
    assert {Died(status).how for status in found} == {"was killed by signal 9"}


def test_a_device_is_what_a_worker_sees(monkeypatch: pytest.MonkeyPatch):
    """One GPU a worker, several workers a GPU where more are asked for; those that the caller may use."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert find_devices("auto", None) == ["0", "1"]
    assert find_devices("cuda", 3) == ["0", "1", "0"]
    assert find_devices("cpu", 3) == [None, None, None]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert find_devices("auto", None) == ["4", "7"]


def test_the_cpu_has_a_worker_a_core(monkeypatch: pytest.MonkeyPatch):
    """Of the cores that this process may use."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert find_devices("auto", None) == [None] * usable_cores()
    with pytest.raises(TrainingError, match="device is 'cuda', but torch sees no CUDA device"):
        find_devices("cuda", None)


class InThisProcess:
    """What `RayExecutor` asks of Ray; a job "die" loses its process."""

    def __init__(self) -> None:
        self.cancelled: list[Any] = []

    def cluster_resources(self) -> dict[str, float]:
        """Three cores."""
        return {"CPU": 3.0}

    def remote(self, **needs: int) -> Callable[[Any], Any]:
        """A task whose reference is its call."""
        assert needs == {"num_cpus": 1, "num_gpus": 0, "max_calls": 1, "max_retries": 0}
        return lambda function: SimpleNamespace(remote=lambda *given: (function, given))

    def wait(self, references: list[Any]) -> tuple[list[Any], list[Any]]:
        """The first one has ended."""
        return references[:1], references[1:]

    def get(self, reference: Any) -> Any:
        """The result of a task."""
        function, (work, job, place) = reference
        if job == "die":
            raise WorkerCrashedError
        return function(work, job, place)

    def cancel(self, reference: Any, *, force: bool) -> None:
        """End a task."""
        self.cancelled.append(reference[1][1])


def test_tasks_of_ray_are_jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """In the place where they are asked for. `test_ray_executor.py` has Ray itself."""
    ray = InThisProcess()
    monkeypatch.setattr(ray_executor, "ray", ray)
    monkeypatch.chdir(tmp_path)
    tasks = ray_executor.RayExecutor("cpu", 2)
    found = dict(tasks.run(tell_place, ["die", "tell", "device"]))
    assert isinstance(found.pop("die"), Failure)
    assert found == {"tell": tmp_path, "device": tmp_path}
    runs = tasks.run(tell_place, ["tell", "device", "never"])
    assert next(runs) == ("tell", tmp_path)
    runs.close()
    assert (tasks.width, ray.cancelled) == (2, ["device"])


def tell_place(job: str, send: Send) -> None:
    """Tell the working directory."""
    send(Path.cwd())
