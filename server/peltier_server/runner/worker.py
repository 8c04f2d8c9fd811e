"""One thread that computes."""

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

import torch
from peltier_adapters.batch.row import RowOutput
from peltier_adapters.graphs.choice import create_graphs
from peltier_backbone.load import Backbone
from peltier_client.errors import InferenceFailed, PeltierError

from peltier_server.metrics.metrics import Metrics
from peltier_server.queue.batch import Batch
from peltier_server.queue.batcher import Batcher
from peltier_server.queue.ticket import Ticket, settle
from peltier_server.runner.bisection import Bisection
from peltier_server.runner.compute_guard import ComputeGuard, WorkerReplaced
from peltier_server.runner.decoder import Decoder

logger = logging.getLogger(__name__)

# Where every turn fails, the log shall not fill the disk.
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Place:
    """What every thread that computes works with."""

    backbone: Backbone
    batcher: Batcher
    metrics: Metrics
    num_threads: int
    cuda_graphs: bool


class Worker:
    """Computes batch after batch, and between two of them one step of every text that is being written, until the
    batcher has run dry or another thread relieves it. Nothing else ends it, and whatever it has taken gets an answer.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._shift = ComputeGuard()
        # A thread's own, as what one thread has captured no other may replay at the same time.
        graphs = create_graphs(place.backbone) if place.cuda_graphs else None
        self._bisection = Bisection(place.backbone, self._shift, graphs)
        self._decoder = Decoder(place.backbone, place.metrics, self._shift, place.batcher)
        self._in_hand: list[Ticket] = []
        self._usable = False
        self._failed = False
        self.num_computed = 0
        # A daemon, so that a batch which never ends cannot keep a drained process alive.
        self.thread = threading.Thread(target=self._loop, name="runner", daemon=True)

    @property
    def proven(self) -> bool:
        """It can use the device, and if it has failed between computations, a turn has succeeded since."""
        return self._usable and not self._failed

    def replace_worker(self, after_seconds: float) -> bool:
        """Whether its present computation has taken longer than this. Then it leaves as soon as that ends, and touches
        nothing any more."""
        return self._shift.replace_worker(after_seconds)

    def abandon(self, error: PeltierError) -> None:
        """Whoever waits for something that it has in hand gets `error`."""
        # Where the event loop has closed, nobody waits.
        with suppress(RuntimeError):
            settle(self._in_hand, [error] * len(self._in_hand))

    def _loop(self) -> None:
        torch.set_num_threads(self._place.num_threads)
        live = True
        while live:
            try:
                live = self._turn()
                self._failed = False
            except WorkerReplaced:
                logger.warning("a computation that was given up has ended after all")
                return
            except BaseException:
                logger.exception("the runner failed between computations, so what it had in hand is given up")
                self._failed = True
                self._start_afresh()

    def _turn(self) -> bool:
        if not self._usable:
            self._prove()
        # After a failure it has to show that it gets through a turn, though nobody may come to a server that is not
        # ready.
        batch = self._place.batcher.next(
            live_rows=self._decoder.num_rows, live_cost=self._decoder.step_cost, wait=not self._failed
        )
        if batch is None:
            return False
        self._take(batch)
        self._compute(batch)
        self._write(batch)
        self.num_computed += bool(self._in_hand)
        return True

    def _prove(self) -> None:
        # Where a computation of another thread keeps the device, this one comes no further; some failures of a row
        # leave a device on which nothing works any more.
        self._usable = False
        with self._shift.computing():
            torch.ones((), device=self._place.backbone.device).item()
        self._usable = True

    def _take(self, batch: Batch) -> None:
        waiting = [ticket for ticket in self._in_hand if not ticket.future.done()]
        self._in_hand = [*waiting, *batch.tickets, *batch.drafts]

    def _compute(self, batch: Batch) -> None:
        if not batch.tickets:
            return
        started = time.monotonic()
        outputs = self._bisection.compute(batch.rows, record_gates=batch.record_gates)
        if any(isinstance(output, InferenceFailed) for output in outputs):
            self._prove()
        seconds = time.monotonic() - started
        self._place.metrics.observe_batch(batch, seconds)
        if all(isinstance(output, RowOutput) for output in outputs):
            self._place.batcher.learn(batch.tickets, seconds)
        batch.resolve(outputs)

    def _write(self, batch: Batch) -> None:
        failed_before = self._decoder.num_failed
        self._decoder.join(batch.drafts)
        self._place.batcher.charge(self._decoder.step())
        if self._decoder.num_failed > failed_before:
            self._prove()

    def _start_afresh(self) -> None:
        self.abandon(InferenceFailed("the server failed while it computed this input; its log has the reason"))
        self._in_hand = []
        self._decoder = Decoder(self._place.backbone, self._place.metrics, self._shift, self._place.batcher)
        time.sleep(_PAUSE_SECONDS)
