"""The worker beside the server."""

import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from peltier_server.app import create_app
from peltier_server.settings import Settings, SettingsError
from peltier_server.trainings import worker_process
from peltier_server.trainings.worker_process import WorkerProcess, worker_command, worker_environment

from tests.server.conftest import until

_WAITS = "import signal; signal.pause()"
_STAYS = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"


def is_alive(pid: int) -> bool:
    """Whether the process exists."""
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
async def start(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[str], WorkerProcess]]:
    """`start(code)` runs this Python as the worker; pauses are short."""
    monkeypatch.setattr(worker_process, "_FIRST_PAUSE_SECONDS", 0.01)
    started = list[WorkerProcess]()

    def run(code: str) -> WorkerProcess:
        started.append(WorkerProcess([sys.executable, "-c", code], dict(os.environ)))
        started[-1].start()
        return started[-1]

    yield run
    for one in started:
        await one.close()


async def test_a_worker_that_dies_is_started_again(
    start: Callable[[str], WorkerProcess], caplog: pytest.LogCaptureFixture
) -> None:
    """The log says with which status it ended."""
    worker = start(_WAITS)
    await until(lambda: worker.pid)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    await until(lambda: worker.num_starts == 2 and worker.pid)
    assert "the worker beside the server ended with status -9; it is started again in 0.01 s" in caplog.text


async def test_the_pause_grows_while_it_ends_at_once(
    start: Callable[[str], WorkerProcess], caplog: pytest.LogCaptureFixture
) -> None:
    """It doubles."""
    worker = start("raise SystemExit(1)")
    await until(lambda: worker.num_starts == 3)
    pauses = [one.args[1] for one in caplog.records if one.levelno == logging.WARNING and isinstance(one.args, tuple)]
    assert pauses[:2] == [0.01, 0.02]


async def test_it_ends_with_the_server(start: Callable[[str], WorkerProcess]) -> None:
    """Asked by SIGTERM."""
    worker = start(_WAITS)
    await until(lambda: worker.pid)
    pid = worker.pid
    await worker.close()
    assert pid is not None
    assert not is_alive(pid)


async def test_one_that_does_not_end_is_killed(
    start: Callable[[str], WorkerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while."""
    monkeypatch.setattr(worker_process, "_MAX_STOP_SECONDS", 0.05)
    worker = start(_STAYS)
    await until(lambda: worker.pid)
    pid = worker.pid
    await worker.close()
    assert pid is not None
    assert not is_alive(pid)


def test_it_works_on_the_servers_store_at_the_lowest_priority(
    settings_of: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the command line nor its environment has a secret of the server."""
    monkeypatch.setenv("PELTIER_ADMIN_KEY", "k" * 40)
    settings = settings_of(worker=True)
    command, environment = worker_command(settings), worker_environment(settings)
    assert command[1:4] == ["-m", "peltier_client", "worker"]
    assert command[-2:] == ["--nice", "19"]
    assert command[command.index("--backbone") + 1] == settings.compute.backbone
    assert {name for name in environment if name.startswith("PELTIER_")} == {"PELTIER_STORE", "PELTIER_REGISTRY"}
    assert environment["PELTIER_REGISTRY"] == settings.store.registry
    assert WorkerProcess.of(settings_of()) is None


def test_a_missing_package_is_named_with_its_extra(
    settings_of: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the server starts."""
    monkeypatch.setattr(worker_process, "find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=r'^setting .worker. needs accelerate: pip install "peltier\[training\]"$'):
        create_app(settings_of(worker=True))
