"""The thread that computes."""

import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from peltier_adapters.batch.row import Row, RowOutput
from peltier_adapters.batch.runner import Runner
from peltier_adapters.gpu.capture import create_graphs
from peltier_backbone.backbone import Backbone
from peltier_client.errors import InferenceFailed, PeltierError

from peltier_server.metrics.metrics import Metrics
from peltier_server.queue.batch import TicketBatch
from peltier_server.queue.batcher import Batcher
from peltier_server.queue.ticket import Reduce, Ticket, settle
from peltier_server.runner.decoder import TextDecoder
from peltier_server.runner.isolation import Bisection, ComputeGuard, WorkerReplaced, blame

logger = logging.getLogger(__name__)

# Added to the nice value of the background thread: beside a busy thread Linux gives it about a tenth of a core.
BACKGROUND_NICENESS = 10
# If every iteration fails, the log must not fill the disk.
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class WorkerResources:
    """What all workers of a server share. `runner` computes the batches of the backbone."""

    backbone: Backbone
    runner: Runner
    batcher: Batcher
    metrics: Metrics
    num_threads: int
    cuda_graphs: bool


class Worker:
    """Computes batches, and after each batch one step of every text in decoding. It ends when the closed batcher is
    empty or when another thread replaces it, and for no other reason. Every ticket that it has taken gets a result.

    With `background` it computes the rows for the background, with a lower priority, and ends when none waits. It does
    not stay idle, because OpenMP's threads wait without sleep only while there are no more of them than cores: a second
    team makes the short batches of the other worker slower.
    """

    def __init__(self, resources: WorkerResources, *, background: bool = False) -> None:
        self._resources = resources
        self.background = background
        self._guard = ComputeGuard()
        # Own graphs, because two threads must not replay the same graph at the same time.
        graphs = create_graphs(resources.backbone) if resources.cuda_graphs else None
        self._bisection = Bisection(resources.backbone, resources.runner, self._guard, graphs)
        # Made for the first text; an encoder's rows never enter it.
        self._decoder: TextDecoder | None = None
        self._taken: list[Ticket] = []
        self._usable = False
        self._failed = False
        self.num_computed = 0
        # A daemon, so that a batch that hangs cannot keep a drained process alive.
        name = "background runner" if background else "runner"
        self.thread = threading.Thread(target=self._loop, name=name, daemon=True)

    @property
    def proven(self) -> bool:
        """Whether it can use the device, and no iteration has failed since the last success."""
        return self._usable and not self._failed

    @property
    def decode_rows(self) -> int:
        """The rows of the next decoding step."""
        return 0 if self._decoder is None else self._decoder.num_rows

    def replace_worker(self, after_seconds: float) -> bool:
        """Whether its current computation has taken longer than this. If so, the thread ends with the computation, and
        touches nothing any more."""
        return self._guard.replace_worker(after_seconds)

    def abandon(self, error: PeltierError) -> None:
        """Fails all tickets that it has taken with `error`."""
        # A closed event loop has no waiting callers.
        with suppress(RuntimeError):
            settle(self._taken, [error] * len(self._taken))

    def _loop(self) -> None:
        # On Linux both are those of this thread, and the threads that it starts inherit the priority.
        torch.set_num_threads(self._resources.num_threads)
        if self.background and sys.platform == "linux":
            os.nice(BACKGROUND_NICENESS)
        is_running = True
        while is_running:
            try:
                is_running = self._iterate()
                self._failed = False
            except WorkerReplaced:
                logger.warning("an abandoned computation has ended")
                return
            except BaseException:
                logger.exception("the runner failed between computations, so its rows are abandoned")
                self._failed = True
                self._restart()

    def _iterate(self) -> bool:
        if not self._usable:
            self._check_device()
        live_rows = self.decode_rows
        batch = self._resources.batcher.next_background() if self.background else self._next(live_rows)
        if batch is None:
            return False
        self._take(batch)
        self._compute(batch)
        if batch.drafts or live_rows:
            self._write(batch.drafts)
        self.num_computed += bool(self._taken)
        return True

    def _next(self, live_rows: int) -> TicketBatch | None:
        # After a failure it does not wait for requests, because a server that is not ready may get none.
        live_cost = 0 if self._decoder is None else self._decoder.step_cost
        return self._resources.batcher.next(live_rows=live_rows, live_cost=live_cost, wait=not self._failed)

    def _check_device(self) -> None:
        # Blocks while a computation of another thread occupies the device. Fails if a row has left the device unusable.
        self._usable = False
        with self._guard.computing():
            torch.ones((), device=self._resources.backbone.device).item()
        self._usable = True

    def _take(self, batch: TicketBatch) -> None:
        waiting = [ticket for ticket in self._taken if ticket.is_open]
        self._taken = [*waiting, *batch.tickets, *batch.drafts]

    def _compute(self, batch: TicketBatch) -> None:
        if not batch.tickets:
            return
        started, trace = time.monotonic(), batch.trace()
        outputs = self._bisection.compute(batch.rows, record_gates=batch.record_gates)
        errors = [output for output in outputs if isinstance(output, PeltierError)]
        if any(isinstance(error, InferenceFailed) for error in errors):
            self._check_device()
        seconds = time.monotonic() - started
        self._resources.metrics.observe_batch(batch, seconds)
        # In the background the time depends on what else is computed.
        if not errors and not self.background:
            self._resources.batcher.learn(batch.tickets, seconds)
        if trace is not None:
            trace.end(len(errors))
        batch.resolve(_reduce(batch.tickets, outputs), trace)

    def _write(self, drafts: Sequence[Ticket]) -> None:
        decoder = self._decoder = self._decoder or self._new_decoder()
        failed_before = decoder.num_failed
        decoder.join(drafts)
        self._resources.batcher.charge(decoder.step())
        if decoder.num_failed > failed_before:
            self._check_device()

    def _new_decoder(self) -> TextDecoder:
        resources = self._resources
        return TextDecoder(resources.backbone, resources.runner, resources.metrics, self._guard, resources.batcher)

    def _restart(self) -> None:
        self.abandon(InferenceFailed("the server failed while it computed this input; its log has the reason"))
        self._taken = []
        self._decoder = None
        time.sleep(_PAUSE_SECONDS)


def _reduce(tickets: Sequence[Ticket], outputs: Sequence[RowOutput | PeltierError]) -> list[Any]:
    """What the requests of `tickets` need of the outputs of their rows."""
    rest = iter(outputs)
    return [_reduce_row(ticket.reduce, row, next(rest)) for ticket in tickets for row in ticket.rows]


def _reduce_row(reduce: Reduce | None, row: Row, output: RowOutput | PeltierError) -> Any:
    if reduce is None or isinstance(output, PeltierError):
        return output
    try:
        return reduce(row, output)
    except Exception as error:
        logger.warning("the output of a row cannot be reduced", exc_info=True)
        return blame(error)
