"""Runs the threads that compute, and replaces those that are stuck."""

import asyncio
import logging
import time
from collections.abc import Callable

from peltier_adapters.batch.choice import choose_runner
from peltier_backbone.backbone import Backbone
from peltier_client.errors import InferenceFailed, NotReady

from peltier_server import retry_hints
from peltier_server.background import BackgroundTask
from peltier_server.metrics.metrics import Metrics
from peltier_server.queue.batcher import Batcher
from peltier_server.runner.worker import Worker, WorkerResources

logger = logging.getLogger(__name__)

# A computation in the background may take this many times as long, because it gets about a tenth of a busy core.
BACKGROUND_SLOWDOWN = 10
_LOOKS_PER_BOUND = 20
_MAX_PAUSE_SECONDS = 1.0


class WorkerSupervisor:
    """Runs one `Worker` on the batches of the batcher, and another one in the background while rows wait for it.
    Replaces a worker that is stuck.

    A stuck thread cannot be ended, and it keeps the memory of its rows' adapters until it ends. Everything else
    continues without it.
    """

    def __init__(
        self, backbone: Backbone, batcher: Batcher, metrics: Metrics, *, num_threads: int, cuda_graphs: bool = False
    ) -> None:
        self._resources = WorkerResources(backbone, choose_runner(backbone), batcher, metrics, num_threads, cuda_graphs)
        self._stuck: tuple[Worker, ...] = ()
        self._worker = Worker(self._resources)
        self._background: Worker | None = None
        batcher.start_background = self._start_background

    @property
    def proven(self) -> bool:
        """Whether the current thread can use the device, and its last iteration did not fail."""
        return self._worker.proven

    @property
    def is_well(self) -> bool:
        """Whether the current thread has computed something, and no thread is stuck."""
        return self._worker.num_computed > 0 and not self._stuck

    def start(self) -> None:
        """Starts the thread."""
        self._worker.thread.start()

    def join(self, timeout_seconds: float) -> None:
        """Waits until the threads have computed everything in the closed batcher."""
        end = time.monotonic() + timeout_seconds
        self._worker.thread.join(timeout_seconds)
        if self._background is not None:
            self._background.thread.join(max(0.0, end - time.monotonic()))

    def replace_worker(self, after_seconds: float) -> bool:
        """Replaces a thread if its computation takes longer than this, or in the background `BACKGROUND_SLOWDOWN` times
        as long; returns whether it did.

        The callers of that computation get `InferenceFailed`, which they do not retry, because it is unknown which rows
        hang, and a retry could block another replica.
        """
        self._forget_ended()
        is_stuck = self._worker.replace_worker(after_seconds)
        if is_stuck:
            self._worker = self._replace(self._worker, after_seconds)
        background_seconds = BACKGROUND_SLOWDOWN * after_seconds
        if self._background is not None and self._background.replace_worker(background_seconds):
            self._background = self._replace(self._background, background_seconds)
            is_stuck = True
        return is_stuck

    def _start_background(self) -> None:
        self._background = Worker(self._resources, background=True)
        self._background.thread.start()

    def _replace(self, stuck: Worker, after_seconds: float) -> Worker:
        self._stuck = (*self._stuck, stuck)
        stuck.abandon(
            InferenceFailed(f"the batch with this input did not end within {after_seconds:g} s and was abandoned")
        )
        replacement = Worker(self._resources, background=stuck.background)
        replacement.thread.start()
        return replacement

    def _forget_ended(self) -> None:
        self._stuck = tuple(worker for worker in self._stuck if worker.thread.is_alive())


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
