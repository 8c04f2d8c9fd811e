"""Runs the thread that computes, and replaces it when it is stuck."""

from peltier_adapters.batch.choice import choose_runner
from peltier_backbone.backbone import Backbone
from peltier_client.errors import InferenceFailed

from peltier_server.metrics.metrics import Metrics
from peltier_server.queue.batcher import Batcher
from peltier_server.runner.worker import Worker, WorkerResources


class WorkerSupervisor:
    """Runs one `Worker` at a time on the batches of the batcher, and replaces it when it is stuck.

    A stuck thread cannot be ended, and it keeps the memory of its rows' adapters until it ends. Everything else
    continues without it.
    """

    def __init__(
        self, backbone: Backbone, batcher: Batcher, metrics: Metrics, *, num_threads: int, cuda_graphs: bool = False
    ) -> None:
        self._resources = WorkerResources(backbone, choose_runner(backbone), batcher, metrics, num_threads, cuda_graphs)
        self._stuck: tuple[Worker, ...] = ()
        self._worker = Worker(self._resources)

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
        """Waits until the thread has computed everything in the closed batcher."""
        self._worker.thread.join(timeout_seconds)

    def replace_worker(self, after_seconds: float) -> bool:
        """Replaces the thread if its computation takes longer than this; returns whether it did.

        The callers of that computation get `InferenceFailed`, which they do not retry, because it is unknown which rows
        hang, and a retry could block another replica.
        """
        self._forget_ended()
        stuck = self._worker
        if not stuck.replace_worker(after_seconds):
            return False
        self._stuck = (*self._stuck, stuck)
        self._worker = Worker(self._resources)
        stuck.abandon(
            InferenceFailed(f"the batch with this input did not end within {after_seconds:g} s and was abandoned")
        )
        self._worker.thread.start()
        return True

    def _forget_ended(self) -> None:
        self._stuck = tuple(worker for worker in self._stuck if worker.thread.is_alive())
