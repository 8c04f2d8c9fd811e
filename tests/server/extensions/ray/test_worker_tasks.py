"""Workers as tasks of Ray, without a cluster."""

import _thread
import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

pytest.importorskip("grpc_reflection", reason="Ray Serve is not installed")

from peltier_server import background
from peltier_server.extensions.ray import worker_tasks
from peltier_server.extensions.ray.settings import ClusterSettings
from peltier_server.extensions.ray.worker_tasks import WorkerTasks, train_waiting
from peltier_server.extensions.settings import Settings
from peltier_store.registry.extensions.registry import Registry

from tests.server.conftest import until


class Workers:
    """Runs workers that do nothing until they are told to end or to fail."""

    def __init__(self) -> None:
        self.running: list[asyncio.Future[None]] = []
        self.num_started = self.num_cancelled = 0

    async def run(self) -> None:
        end = asyncio.get_running_loop().create_future()
        self.running.append(end)
        self.num_started += 1
        try:
            await end
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        finally:
            self.running.remove(end)

    def fail(self) -> None:
        """Lets all that run fail."""
        for end in self.running:
            end.set_exception(RuntimeError("it ended with status 3\nand more"))


class Queue:
    """What a registry is asked for: the trainings that wait, and those that workers hold, or the error of an outage."""

    def __init__(self) -> None:
        self.trainings = self
        self.waiting = self.held = self.num_looks = 0
        self.error: Exception | None = None

    async def count_work(self) -> tuple[int, int]:
        self.num_looks += 1
        if self.error:
            raise self.error
        return self.waiting, self.held

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    made = Queue()

    async def open_queue(url: str) -> Queue:
        return made

    monkeypatch.setattr(Registry, "open", open_queue)
    monkeypatch.setattr(worker_tasks, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(worker_tasks, "FIRST_PAUSE_SECONDS", 30)
    monkeypatch.setattr(background, "_PAUSE_SECONDS", 0.01)
    return made


@pytest.fixture
def workers() -> Workers:
    return Workers()


@pytest.fixture
async def tasks(queue: Queue, workers: Workers) -> AsyncIterator[WorkerTasks]:
    """At most three workers."""
    made = WorkerTasks(Settings(cluster=ClusterSettings(max_workers=3)), workers.run)
    made.start()
    yield made
    await made.close()


async def looks(queue: Queue, number: int = 3) -> None:
    """Returns after so many more looks at the queue."""
    seen = queue.num_looks
    await until(lambda: queue.num_looks >= seen + number)


async def test_each_training_gets_a_worker_once(tasks: WorkerTasks, queue: Queue, workers: Workers) -> None:
    """A worker that has not taken its training yet is not started again; one that has ended makes room."""
    queue.waiting = 2
    await until(lambda: len(workers.running) == 2)
    await looks(queue)
    queue.waiting = 9
    await until(lambda: len(workers.running) == 3)
    await looks(queue)
    assert workers.num_started == 3
    workers.running[0].set_result(None)
    await until(lambda: workers.num_started == 4)


async def test_a_failure_stops_no_other_worker(tasks, queue, workers, caplog):
    """Several that fail at once delay the next one by one pause, and the log says why."""
    queue.waiting = 3
    await until(lambda: len(workers.running) == 3)
    workers.running[0].set_exception(RuntimeError("it ended with status 3\nand more"))
    await until(lambda: len(workers.running) == 2)
    workers.fail()
    await until(lambda: not workers.running)
    await looks(queue)
    assert workers.num_started == 3
    assert tasks._pause == 30
    assert "a worker of the cluster failed: it ended with status 3; no other one starts for 30 s" in caplog.text
    tasks._paused_until = 0
    await until(lambda: workers.num_started == 6)
    workers.fail()
    await until(lambda: tasks._pause == 60)


@pytest.mark.parametrize("error", [OSError("the network is away"), ZeroDivisionError()])
async def test_an_outage_ends_nothing(tasks: WorkerTasks, queue: Queue, workers: Workers, error: Exception) -> None:
    """Whatever a look at the queue raises, the next one follows, and workers go on."""
    queue.waiting = 1
    await until(lambda: workers.num_started == 1)
    queue.error = error
    await looks(queue)
    queue.waiting, queue.error = 2, None
    await until(lambda: workers.num_started == 2)
    assert workers.num_cancelled == 0


async def test_workers_end_with_their_server(tasks: WorkerTasks, queue: Queue, workers: Workers) -> None:
    queue.waiting = 2
    await until(lambda: len(workers.running) == 2)
    await tasks.close()
    assert (workers.running, workers.num_cancelled) == ([], 2)


async def test_a_missing_core_is_told(tasks, queue, workers, monkeypatch, caplog):
    """Ray lets a task wait without a word. Workers that have begun are no reason to tell."""
    monkeypatch.setattr(worker_tasks, "_START_SECONDS", 0.0)
    queue.waiting, queue.held = 2, 1
    await until(lambda: workers.running)
    await looks(queue)
    assert caplog.text == ""
    queue.held = 0
    await looks(queue)
    assert "no worker of the cluster has begun; each needs a free core" in caplog.text


async def test_held_trainings_count_while_others_wait(tasks: WorkerTasks, queue: Queue, workers: Workers) -> None:
    """Each of them has a worker already, perhaps outside of the cluster. None starts while nothing waits."""
    queue.held = 2
    await looks(queue)
    assert workers.num_started == 0
    queue.waiting, queue.held = 1, 1
    await until(lambda: workers.num_started == 2)
    await looks(queue)
    assert workers.num_started == 2


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """`run(code)` does the task with this Python as the worker, in a folder of the test."""

    def task(code: str) -> None:
        monkeypatch.setattr(worker_tasks, "worker_command", lambda _: [sys.executable, "-c", code])
        train_waiting(Settings(), str(tmp_path))

    return task


def test_a_task_ends_with_its_worker(run: Callable[[str], None], tmp_path: Path) -> None:
    """Which has one thread and begins in the directory of the settings. If it fails, the task does."""
    run("import sys; open('arguments', 'w').write(' '.join(sys.argv[1:]))")
    assert (tmp_path / "arguments").read_text() == "--threads 1 --once"
    with pytest.raises(RuntimeError, match=r"^it ended with status 3$"):
        run("raise SystemExit(3)")


def test_a_cancelled_task_ends_its_worker(run: Callable[[str], None], tmp_path: Path) -> None:
    """Ray raises KeyboardInterrupt in it. The worker gets SIGTERM, and with it the time to give back its trainings."""

    def interrupt() -> None:
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        _thread.interrupt_main()

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run(
            "import os, signal, time; signal.signal(signal.SIGTERM, lambda *_: open('given back', 'w'))\n"
            "open('part', 'w').write(str(os.getpid())); os.rename('part', 'pid')\n"
            "while not os.path.exists('given back'): time.sleep(0.01)"
        )
    assert (tmp_path / "given back").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
