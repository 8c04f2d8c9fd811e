"""The worker beside the server."""

import asyncio
import logging
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from peltier_server.app import create_app
from peltier_server.extensions.trainings import worker_process
from peltier_server.extensions.trainings.worker_process import WorkerProcess, worker_command, worker_environment
from peltier_server.settings import SettingsError

from tests.server.conftest import until
from tests.support.server_process import Server

_WAITS = "import signal; signal.pause()"
# It has a child, and neither obeys. The note has the numbers of both.
_STAYS = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child:
    open(sys.argv[1] + ".part", "w").write(f"{os.getpid()} {child}")
    os.rename(sys.argv[1] + ".part", sys.argv[1])
signal.pause()
"""


def is_alive(pid: int) -> bool:
    """Whether the process exists and has not ended."""
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
async def start(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., WorkerProcess]]:
    """`start(code, …)` runs this Python as the worker; pauses are short."""
    monkeypatch.setattr(worker_process, "FIRST_PAUSE_SECONDS", 0.01)
    started = list[WorkerProcess]()

    def run(code: str, *arguments: str) -> WorkerProcess:
        started.append(WorkerProcess([sys.executable, "-c", code, *arguments], dict(os.environ)))
        started[-1].start()
        return started[-1]

    yield run
    for one in started:
        await one.close()


async def test_a_worker_that_dies_is_started_again(start, caplog):
    worker = start(_WAITS)
    await until(lambda: worker.pid)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    await until(lambda: worker.num_starts == 2 and worker.pid)
    assert "the worker beside the server ended with status -9; it is started again in 0.01 s" in caplog.text


async def test_the_pause_grows_while_it_ends_at_once(start, caplog):
    worker = start("raise SystemExit(1)")
    await until(lambda: worker.num_starts == 3)
    pauses = [one.args[1] for one in caplog.records if one.levelno == logging.WARNING and isinstance(one.args, tuple)]
    assert pauses[:2] == [0.01, 0.02]


async def test_it_ends_with_the_server(start: Callable[..., WorkerProcess]) -> None:
    worker = start(_WAITS)
    await until(lambda: worker.pid)
    pid = worker.pid
    await worker.close()
    assert pid is not None
    assert not is_alive(pid)


async def test_one_that_does_not_end_is_killed(start, monkeypatch, tmp_path):
    """After a while, with the processes that it has started."""
    monkeypatch.setattr(worker_process, "MAX_STOP_SECONDS", 0.05)
    note = tmp_path / "note"
    worker = start(_STAYS, str(note))
    await until(lambda: note.exists() and worker.pid)
    await assert_ended(worker, note)


async def test_one_that_the_server_has_not_heard_of_yet_is_killed(start, monkeypatch, tmp_path):
    """The event loop is busy from the moment in which the worker is started."""
    monkeypatch.setattr(worker_process, "MAX_STOP_SECONDS", 0.05)
    note = tmp_path / "note"
    worker = start(_STAYS, str(note))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    while not note.exists():
        time.sleep(0.01)  # noqa: ASYNC251 - nothing else may run
    assert worker.pid is None
    await assert_ended(worker, note)


@pytest.mark.parametrize("turns", range(4))
async def test_the_server_ends_while_a_start_fails(turns: int, tmp_path: Path) -> None:
    worker = WorkerProcess([str(tmp_path / "missing")], dict(os.environ))
    worker.start()
    for _ in range(turns):
        await asyncio.sleep(0)
    await asyncio.wait_for(worker.close(), 60)
    assert worker.pid is None


async def assert_ended(worker: WorkerProcess, note: Path) -> None:
    """After `close`, both processes of the note have ended."""
    async with asyncio.timeout(60):
        await worker.close()
    await until(lambda: not any(is_alive(int(pid)) for pid in note.read_text().split()))


async def in_time(condition: Callable[[], object]) -> None:
    """Returns once `condition` holds, which takes a worker's imports."""
    async with asyncio.timeout(300):
        while not condition():  # noqa: ASYNC110 - there is no event in another process's log
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_a_killed_server_takes_its_worker_along(bert_directory: Path, tmp_path: Path) -> None:
    """A real one that waits for trainings, whose server could not end it."""
    server = Server(tmp_path / "log", "--worker", "--backbone", str(bert_directory), "--store", str(tmp_path / "store"))
    try:
        server.wait_until_ready()
        await in_time(lambda: "trains on" in server.log)
        (pid,) = map(int, re.findall(r"a worker runs beside the server pid=(\d+)", server.log))
        assert is_alive(pid)
        server.kill()
        await in_time(lambda: not is_alive(pid))
    finally:
        server.end()


def test_it_works_on_the_servers_store_at_the_lowest_priority(settings_of, monkeypatch):
    """Neither the command line nor its environment has a secret of the server."""
    monkeypatch.setenv("PELTIER_ADMIN_KEY", "k" * 40)
    settings = settings_of(worker=True)
    command, environment = worker_command(settings), worker_environment(settings)
    assert command[1:4] == ["-m", "peltier_client", "worker"]
    assert command[-3:] == ["--nice", "19", "--end-with-input"]
    assert command[command.index("--backbone") + 1] == settings.compute.backbone
    assert {name for name in environment if name.startswith("PELTIER_")} == {"PELTIER_STORE", "PELTIER_REGISTRY"}
    assert environment["PELTIER_REGISTRY"] == settings.store.registry
    assert WorkerProcess.of(settings_of()) is None


def test_a_missing_package_is_named_with_its_extra(settings_of, monkeypatch):
    monkeypatch.setattr(worker_process, "find_spec", lambda _: None)
    remedy = r'pip install "peltier\[training\]", or make install in a clone'
    with pytest.raises(SettingsError, match=f"^setting .worker. needs accelerate: {remedy}$"):
        create_app(settings_of(worker=True))
