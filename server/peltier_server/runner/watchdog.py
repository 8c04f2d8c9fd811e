"""Detects a stuck runner."""

import asyncio
import logging
import time
from collections.abc import Callable

from peltier_client.errors import NotReady

from peltier_server import retry_hints
from peltier_server.background import BackgroundTask
from peltier_server.metrics.metrics import Metrics
from peltier_server.runner.supervisor import WorkerSupervisor

logger = logging.getLogger(__name__)

_LOOKS_PER_BOUND = 20
_MAX_PAUSE_SECONDS = 1.0


class RunnerLost(Exception):
    """The runner is stuck repeatedly, so this process cannot serve any more."""

    is_user_error = True


class Watchdog:
    """Replaces the runner's thread when a computation takes longer than `max_batch_seconds`.

    The server is not ready until the new thread can use the device, nor while a thread fails between computations. If
    that lasts longer than `max_batch_seconds`, it counts as another restart. Restarts are consecutive until a new
    thread has computed something and no thread is stuck. More than `max_restarts` consecutive restarts end the process.
    """

    def __init__(
        self, supervisor: WorkerSupervisor, metrics: Metrics, *, max_batch_seconds: float, max_restarts: int
    ) -> None:
        self._supervisor = supervisor
        self._metrics = metrics
        self._max_batch_seconds = max_batch_seconds
        self._max_restarts = max_restarts
        self._num_restarts = 0
        self._unproven_since: float | None = None
        self._watching = BackgroundTask()

    def start(self, give_up: Callable[[Exception], None]) -> None:
        """Starts watching. Calls `give_up` when restarts do not help."""
        self._watching.start(self._watch(give_up))

    async def close(self) -> None:
        """Stops watching."""
        await self._watching.close()

    @property
    def is_stuck(self) -> bool:
        """Whether it is unknown that the device computes."""
        return self._unproven_since is not None

    def require_well(self) -> None:
        """Raises `NotReady` while it is unknown whether the device computes."""
        if self.is_stuck:
            raise NotReady(
                "the runner is stuck: a batch or the queue failed, or a batch did not end, and the current thread has "
                "made no progress since",
                retry_after=retry_hints.SOON,
            )

    async def _watch(self, give_up: Callable[[Exception], None]) -> None:
        pause = min(_MAX_PAUSE_SECONDS, self._max_batch_seconds / _LOOKS_PER_BOUND)
        while self._num_restarts <= self._max_restarts:
            await asyncio.sleep(pause)
            self._look()
        give_up(RunnerLost(f"the runner was stuck {self._num_restarts} times in a row; see the log"))

    def _look(self) -> None:
        now = time.monotonic()
        if self._supervisor.replace_worker(self._max_batch_seconds):
            self._metrics.runner_restarts.inc()
            self._count(now, "has been computing one batch for")
        elif not self._supervisor.proven:
            self._unproven_since = self._unproven_since or now
            if now - self._unproven_since > self._max_batch_seconds:
                self._count(now, "could not use its device, or failed between computations, for")
        else:
            self._unproven_since = None
            if self._supervisor.is_well:
                self._num_restarts = 0

    def _count(self, now: float, what: str) -> None:
        self._num_restarts += 1
        self._unproven_since = now
        logger.error("the runner %s %g s; number %d in a row", what, self._max_batch_seconds, self._num_restarts)
