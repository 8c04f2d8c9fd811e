"""`peltier worker` beside the server: its command line and environment, which tasks of Ray use too, and the process
that keeps it running."""

import asyncio
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec

from peltier_server.background import BackgroundTask
from peltier_server.extensions.trainings.settings import TrainingSettings
from peltier_server.settings import CoreSettings, SettingsError

logger = logging.getLogger(__name__)

_LOWEST_PRIORITY = 19
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0
# A worker that gives back its training waits up to 5 s for a checkpoint of the next step (`Intervals.grace_seconds`).
MAX_STOP_SECONDS = 10.0
# Packages of the extra that serving does not need.
_PACKAGES = ("accelerate", "transformers")


def require_training() -> None:
    """Raises `SettingsError` unless the packages of a worker are installed."""
    for package in _PACKAGES:
        if find_spec(package) is None:
            remedy = 'pip install "peltier[training]", or make install in a clone'
            raise SettingsError(f"setting 'worker' needs {package}: {remedy}")


def worker_command(settings: CoreSettings) -> list[str]:
    """The command line of the worker. The store and the registry, whose URLs may hold passwords, are not in it."""
    compute = settings.compute
    options = {"backbone": compute.backbone, "device": compute.device, "nice": _LOWEST_PRIORITY}
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    flags.append("--end-with-input")
    return [sys.executable, "-m", "peltier_client", "worker", *flags]


def worker_environment(settings: CoreSettings) -> dict[str, str]:
    """The server's environment without its own settings, among which are secrets, and with the worker's store."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PELTIER_")}
    return {**kept, "PELTIER_STORE": str(settings.store.store), "PELTIER_REGISTRY": settings.store.registry}


class WorkerProcess:
    """Keeps a worker running. One that ends is started again, after a pause that doubles as long as it ends soon.

    Belongs to the event loop.
    """

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self.pid: int | None = None
        self.num_starts = 0
        self._command = command
        self._environment = environment
        self._task = BackgroundTask()

    @classmethod
    def of(cls, settings: CoreSettings) -> "WorkerProcess | None":
        """The worker of these settings; None if they want none."""
        if not settings.group(TrainingSettings).worker:
            return None
        return cls(worker_command(settings), worker_environment(settings))

    def start(self) -> None:
        """Starts the worker."""
        self._task.start(self._run())

    async def close(self) -> None:
        """Ends the worker: asks it first, and kills it if it does not end in time."""
        await self._task.close()

    async def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            started_at = time.monotonic()
            try:
                status = await self._run_once()
                reason = f"ended with status {status}"
            except OSError as error:
                reason = f"cannot be started: {error.strerror}"
            # One that ran for a while had another reason to end than one that ends at once.
            has_worked = time.monotonic() - started_at > MAX_PAUSE_SECONDS
            pause = FIRST_PAUSE_SECONDS if has_worked else pause
            logger.warning("the worker beside the server %s; it is started again in %g s", reason, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _run_once(self) -> int:
        # In a session of its own: Ctrl-C in a terminal reaches the server alone, which then ends the worker. If the
        # server is killed, the system closes the pipe, and the worker ends by that.
        starting = asyncio.create_task(
            asyncio.create_subprocess_exec(*self._command, env=self._environment, stdin=PIPE, start_new_session=True)
        )
        try:
            # Cancelled, the start itself would kill the worker alone, and wait for the processes that it has started.
            process = await asyncio.shield(starting)
            self.pid, self.num_starts = process.pid, self.num_starts + 1
            logger.info("a worker runs beside the server", extra={"fields": {"pid": process.pid}})
            return await process.wait()
        except asyncio.CancelledError:
            with suppress(OSError):  # it has not started
                await _end(await starting)
            raise
        finally:
            self.pid = None


async def _end(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
        try:
            # Not `asyncio.timeout`: in a task that is being cancelled it ends nothing before Python 3.11.3.
            await asyncio.wait_for(process.wait(), MAX_STOP_SECONDS)
        except TimeoutError:
            logger.warning("the worker beside the server does not end, so it is killed")
            # With the processes of its trainings, which are in its session.
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
