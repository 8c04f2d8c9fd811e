"""Who owns the device: one thread at a time."""

from peltier_backbone.load import Backbone
from peltier_client.errors import InferenceFailed

from peltier_server.metrics.metrics import Metrics
from peltier_server.queue.batcher import Batcher
from peltier_server.runner.worker import Place, Worker


class Runner:
    """Has one `Worker` compute what the batcher hands out, and puts another in its place when it is stuck.

    A thread cannot be ended from outside. One that is stuck keeps the memory of its rows' adapters until it ends.
    Everything else goes on without it.
    """

    def __init__(
        self, backbone: Backbone, batcher: Batcher, metrics: Metrics, *, num_threads: int, cuda_graphs: bool = False
    ) -> None:
        self._place = Place(backbone, batcher, metrics, num_threads, cuda_graphs)
        self._stuck: tuple[Worker, ...] = ()
        self._worker = Worker(self._place)

    @property
    def proven(self) -> bool:
        """The thread that computes now can use the device, and has not failed in its last turn."""
        return self._worker.proven

    @property
    def is_well(self) -> bool:
        """The thread that computes now has computed something, and none is stuck."""
        return self._worker.num_computed > 0 and not self._stuck

    def start(self) -> None:
        """Begins to compute."""
        self._worker.thread.start()

    def join(self, timeout_seconds: float) -> None:
        """Waits until the batcher, once closed, has run dry."""
        self._worker.thread.join(timeout_seconds)

    def replace_worker(self, after_seconds: float) -> bool:
        """Puts another thread in the place of one whose computation takes longer than this; whether it did.

        Whoever waits for that computation reads `InferenceFailed` and not an invitation to come back: nobody knows
        whose rows they are that have no end, and another replica would be next.
        """
        self._let_go()
        stuck = self._worker
        if not stuck.replace_worker(after_seconds):
            return False
        self._stuck = (*self._stuck, stuck)
        self._worker = Worker(self._place)
        stuck.abandon(
            InferenceFailed(f"the batch with this input has not ended within {after_seconds:g} s and was given up")
        )
        self._worker.thread.start()
        return True

    def _let_go(self) -> None:
        self._stuck = tuple(worker for worker in self._stuck if worker.thread.is_alive())
