"""Workers as tasks of Ray: one for each training that waits, up to a number at a time."""

import asyncio
import logging
import math
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from peltier_store.registry import Registry, RegistryError
from ray.exceptions import RayError

from peltier_server.background import BackgroundTask
from peltier_server.settings import Settings
from peltier_server.trainings.worker_process import worker_command, worker_environment

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 2.0
# How often Ray runs a task again whose process or node was lost. After that the next look at the queue starts another.
_MAX_RETRIES = 3
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 1.0, 60.0
# A worker that gives back its training has written its last checkpoint before.
_MAX_STOP_SECONDS = 10.0
# Ray interrupts Python code only, and not a call of the system that waits.
_POLL_SECONDS = 0.5


class WorkerTasks:
    """Starts a worker for each training that waits, up to `max_workers` at a time. A worker takes one training after
    another from the registry's queue, and ends when none waits.

    A worker that fails delays the next one, by a pause that doubles until a worker succeeds. Belongs to the event loop.
    """

    def __init__(self, settings: Settings, directory: str) -> None:
        """`directory` is where relative paths of the settings begin."""
        self._settings, self._directory = settings, directory
        self._task: Any = ray.remote(
            num_cpus=1, num_gpus=int(settings.compute.device == "cuda"), max_retries=_MAX_RETRIES
        )(train_waiting)
        self._registry: Registry | None = None
        self._num_running = 0
        self._pause = 0.0
        self._background = BackgroundTask()

    def start(self) -> None:
        """Looks at the queue from now on."""
        self._background.start(self._run())

    async def close(self) -> None:
        """Ends the workers, which give their trainings back."""
        await self._background.close()
        if self._registry is not None:
            await self._registry.close()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                for _ in range(await self._num_missing()):
                    self._num_running += 1
                    group.create_task(self._train())
                await asyncio.sleep(max(self._pause, _LOOK_SECONDS))

    async def _num_missing(self) -> int:
        settings = self._settings
        try:
            if self._registry is None:
                self._registry = await Registry.open(settings.store.registry)
            work = await self._registry.trainings.count_work()
        except RegistryError as error:
            logger.warning("the trainings that wait cannot be counted: %s", error)
            return 0
        wanted = num_workers(*work, trainings=settings.training.trainings, most=settings.cluster.max_workers)
        return max(wanted - self._num_running, 0)

    async def _train(self) -> None:
        """Has one task until it ends."""
        reference = self._task.options(name="peltier worker").remote(self._settings, self._directory)
        try:
            await reference
            self._pause = 0.0
        except asyncio.CancelledError:
            ray.cancel(reference)
            with suppress(RayError, TimeoutError):
                async with asyncio.timeout(_MAX_STOP_SECONDS + 2 * _POLL_SECONDS):
                    await reference
            raise
        except RayError as error:
            self._pause = min(max(2 * self._pause, _FIRST_PAUSE_SECONDS), _MAX_PAUSE_SECONDS)
            reason = getattr(error, "cause", None) or str(error).partition("\n")[0]
            logger.warning("a worker of the cluster failed: %s; the next one starts in %g s", reason, self._pause)
        finally:
            self._num_running -= 1


def num_workers(waiting: int, held: int, *, trainings: int, most: int) -> int:
    """How many workers of so many `trainings` at a time do what waits beside what workers have; 0 if nothing waits."""
    return min(math.ceil((waiting + held) / trainings), most) if waiting else 0


def train_waiting(settings: Settings, directory: str) -> None:
    """Runs `peltier worker` with one thread until no training waits. Ray runs it on any node with a free core.

    If Ray cancels the task or this process is killed, the worker gives its trainings back. Raises RuntimeError if the
    worker fails.
    """
    command = [*worker_command(settings), "--threads", "1", "--once"]
    where, environment = directory if Path(directory).is_dir() else None, worker_environment(settings)
    with subprocess.Popen(  # noqa: S603 - the command of the settings
        command, env=environment, cwd=where, stdin=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            status = _wait(process)
        except BaseException:
            _end(process)
            raise
    if status:
        raise RuntimeError(f"it ended with status {status}")


def _wait(process: subprocess.Popen[bytes]) -> int:
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_POLL_SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_MAX_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        # With the processes of its trainings, which are in its session.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
