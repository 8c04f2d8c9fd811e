"""Workers as tasks of Ray: one for each training that waits, up to a number at a time."""

import asyncio
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from peltier_store.registry.extensions.registry import Registry
from ray.exceptions import RayError

from peltier_server.background import QueueTask
from peltier_server.extensions.settings import Settings
from peltier_server.extensions.trainings.worker_process import (
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    MAX_STOP_SECONDS,
    worker_command,
    worker_environment,
)

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 2.0
# How often Ray runs a task again whose process or node was lost. After that the next look at the queue starts another.
_RETRIES = 3
# Ray interrupts Python code only, and not a call of the system that waits.
_POLL_SECONDS = 0.5
# A worker starts in less time, so after this much Ray has probably no core for it.
_START_SECONDS = 60.0


class WorkerTasks:
    """Starts a worker for each training that waits, up to `max_workers` at a time. A worker takes one training after
    another from the registry's queue, and ends when none waits.

    If a worker fails, no other one starts for a while, which doubles until a worker succeeds. Belongs to the event
    loop.
    """

    def __init__(self, settings: Settings, run_worker: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`run_worker` runs one worker and waits for its end; when it is cancelled, it ends the worker."""
        self._settings, self._run_worker = settings, run_worker
        self._registry: Registry | None = None
        self._workers: set[asyncio.Task[None]] = set()
        self._pause, self._paused_until = 0.0, 0.0
        self._idle_since: float | None = None
        self._looks = QueueTask(self._start_missing, "no training worker can be started", _LOOK_SECONDS)

    def start(self) -> None:
        """Looks at the queue from now on."""
        self._looks.start()

    async def close(self) -> None:
        """Ends the workers, which give their trainings back."""
        await self._looks.close()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        if self._registry is not None:
            await self._registry.close()

    async def _start_missing(self) -> bool:
        """Returns False: the next look follows after a pause."""
        settings, now = self._settings, time.monotonic()
        if self._registry is None:
            self._registry = await Registry.open(settings.store.registry)
        waiting, held = await self._registry.trainings.count_work()
        self._tell_of_cores(waiting, held, now)
        if now >= self._paused_until:
            wanted = min(waiting + held, settings.cluster.max_workers) if waiting else 0
            for _ in range(wanted - len(self._workers)):
                worker = asyncio.create_task(self._follow_worker())
                self._workers.add(worker)
                worker.add_done_callback(self._workers.discard)
        return False

    def _tell_of_cores(self, waiting: int, held: int, now: float) -> None:
        """Logs, once a minute, that trainings wait although there are tasks for them."""
        if held or not (waiting and self._workers):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= _START_SECONDS:
            self._idle_since = now
            needed = "a free core and GPU" if self._settings.compute.device == "cuda" else "a free core"
            logger.warning("for %g s no worker of the cluster has begun; each needs %s", _START_SECONDS, needed)

    async def _follow_worker(self) -> None:
        """Runs one worker."""
        try:
            await self._run_worker()
        except Exception as error:
            now = time.monotonic()
            if now >= self._paused_until:  # else several have failed for one reason
                self._pause = min(max(2 * self._pause, FIRST_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
                self._paused_until = now + self._pause
            reason = getattr(error, "cause", None) or str(error).partition("\n")[0]
            logger.warning(
                "a worker of the cluster failed: %s; no other one starts for %g s", reason, self._paused_until - now
            )
        else:
            self._pause = 0.0


def as_ray_task(settings: Settings, directory: str) -> Callable[[], Coroutine[Any, Any, None]]:
    """A function that runs `train_waiting` as a task of Ray, which has one core and on CUDA one GPU of the cluster."""
    num_gpus = int(settings.compute.device == "cuda")
    task: Any = ray.remote(num_cpus=1, num_gpus=num_gpus, max_retries=_RETRIES)(train_waiting)

    async def run_worker() -> None:
        reference = task.options(name="peltier worker").remote(settings, directory)
        try:
            await reference
        except asyncio.CancelledError:
            ray.cancel(reference)
            with suppress(RayError, TimeoutError):
                # As in `worker_process`, not `asyncio.timeout`.
                await asyncio.wait_for(reference, MAX_STOP_SECONDS + 2 * _POLL_SECONDS)
            raise

    return run_worker


def train_waiting(settings: Settings, directory: str) -> None:
    """Runs `peltier worker` with one thread until no training waits.

    `directory` is where relative paths of the settings begin. If Ray cancels the task or this process is killed, the
    worker gives its trainings back. Raises RuntimeError if the worker fails.
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
        process.wait(MAX_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its session, with the processes of its trainings
        process.wait()
