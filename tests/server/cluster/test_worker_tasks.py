"""Workers as tasks of Ray, without a cluster."""

import _thread
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("grpc_reflection", reason="Ray Serve is not installed")

from peltier_server.cluster import worker_tasks
from peltier_server.cluster.worker_tasks import num_workers, train_waiting
from peltier_server.settings import Settings


@pytest.mark.parametrize(
    ("waiting", "held", "trainings", "wanted"),
    [(0, 0, 1, 0), (0, 2, 1, 0), (1, 0, 1, 1), (2, 1, 1, 3), (9, 0, 1, 4), (9, 0, 4, 3), (1, 4, 4, 2)],
)
def test_a_worker_is_wanted_for_each_training(waiting: int, held: int, trainings: int, wanted: int) -> None:
    """At most four here, fewer if a worker has several trainings, and none while nothing waits."""
    assert num_workers(waiting, held, trainings=trainings, most=4) == wanted


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

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run(
            "import os, signal; signal.signal(signal.SIGTERM, lambda *_: open('given back', 'w'));"
            "open('part', 'w').write(str(os.getpid())); os.rename('part', 'pid'); signal.pause()"
        )
    assert (tmp_path / "given back").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
