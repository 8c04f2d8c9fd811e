"""The one thread that owns the device."""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import torch
from peltier_adapters.batch import forward
from peltier_adapters.row import Row, RowOutput
from peltier_backbone.load import Backbone
from peltier_client.errors import InferenceFailed, PeltierError

from peltier_server.batch import Batch
from peltier_server.batcher import Batcher
from peltier_server.decoder import Decoder
from peltier_server.metrics import Metrics

logger = logging.getLogger(__name__)


class Runner:
    """Computes batch after batch, and between two of them one step of every text that is being written.

    A batch that fails is tried again row by row, so a bad row fails alone.
    """

    def __init__(self, backbone: Backbone, batcher: Batcher, metrics: Metrics, *, num_threads: int) -> None:
        self._backbone = backbone
        self._batcher = batcher
        self._metrics = metrics
        self._decoder = Decoder(backbone, metrics)
        self._num_threads = num_threads
        self._errands: deque[tuple[Callable[[], None], asyncio.Future[None]]] = deque()
        # A daemon, so that a batch which never ends cannot keep a drained process alive.
        self._thread = threading.Thread(target=self._loop, name="runner", daemon=True)

    def start(self) -> None:
        """Begins to compute."""
        self._thread.start()

    def join(self, timeout_seconds: float) -> None:
        """Waits until the batcher, once closed, has run dry."""
        self._thread.join(timeout_seconds)

    async def between_batches(self, errand: Callable[[], None]) -> None:
        """Runs a short `errand` in the runner's thread at a moment when no batch and no step is being computed."""
        done = asyncio.get_running_loop().create_future()
        self._errands.append((errand, done))
        self._batcher.wake()
        await done

    def run(self, batch: Batch) -> list[RowOutput | PeltierError]:
        """One output or error per row of `batch`; never raises."""
        started = time.monotonic()
        try:
            outputs = self._forward(batch.rows, record_gates=batch.record_gates)
        except Exception:
            logger.exception("a batch of %d rows failed; trying its rows one by one", len(batch.tickets))
            outputs = [self._alone(row, record_gates=batch.record_gates) for row in batch.rows]
        if batch.tickets:
            self._metrics.observe_batch(batch, time.monotonic() - started)
        return outputs

    def _loop(self) -> None:
        torch.set_num_threads(self._num_threads)
        while (batch := self._batcher.next(live_rows=self._decoder.num_rows)) is not None:
            batch.resolve(self.run(batch))
            self._decoder.join(batch.drafts)
            self._decoder.step()
            self._run_errands()
        self._run_errands()

    def _forward(self, rows: Sequence[Row], *, record_gates: bool) -> list[RowOutput | PeltierError]:
        if not rows:
            return []
        return [_finite(output) for output in forward(self._backbone, rows, record_gates=record_gates)]

    def _alone(self, row: Row, *, record_gates: bool) -> RowOutput | PeltierError:
        try:
            return self._forward([row], record_gates=record_gates)[0]
        except Exception as error:
            logger.exception("a row of %d tokens failed alone", len(row.encoded))
            return InferenceFailed(f"the model failed on this input with {type(error).__name__}")

    def _run_errands(self) -> None:
        while self._errands:
            errand, done = self._errands.popleft()
            try:
                errand()
            except Exception:
                logger.exception("an errand between batches failed")
            done.get_loop().call_soon_threadsafe(_finish, done)


def _finite(output: RowOutput) -> RowOutput | PeltierError:
    # A sum is finite only if all of its terms are; it is one operation where `isfinite().all()` is two.
    if math.isfinite(float(output.logits.sum())):
        return output
    return InferenceFailed("the model's output for this input is not finite")


def _finish(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)
