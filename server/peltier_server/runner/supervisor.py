"""Runs the threads that compute, and replaces those that are stuck."""

import time

from peltier_adapters.batch.choice import choose_runner
from peltier_backbone.backbone import Backbone
from peltier_client.errors import InferenceFailed

from peltier_server.metrics.metrics import Metrics
from peltier_server.queue.batcher import Batcher
from peltier_server.runner.worker import Worker, WorkerResources

# A computation in the background may take this many times as long, because it gets about a tenth of a busy core.
BACKGROUND_SLOWDOWN = 10


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
