"""Isolates the rows that fail in a batch, tells what a failure means for the caller of a row, and detects that a
computation takes too long."""

import gc
import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row, RowOutput
from peltier_adapters.batch.runner import Runner
from peltier_backbone.backbone import Backbone
from peltier_backbone.machine.heap import give_back_freed_memory
from peltier_backbone.machine.memory import is_out_of_memory
from peltier_client.errors import InferenceFailed, PeltierError, Unavailable

from peltier_server import retry_hints

if TYPE_CHECKING:
    from peltier_adapters.gpu.graphs import Graphs

logger = logging.getLogger(__name__)

NOT_FINITE = "the model's output for this input is not finite"
_FEW_VALUES = 1024


class WorkerReplaced(BaseException):
    """Another thread has replaced this one, which must end without touching anything.

    It is not an `Exception`, so that code that isolates failures does not treat it as the failure of a row.
    """


class ComputeGuard:
    """The duration of a thread's current computation, and whether another thread has replaced it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began_at: float | None = None
        self._replaced = False

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Wraps a computation that may hang. Raises `WorkerReplaced`, whatever its result, if the thread was replaced
        meanwhile."""
        self._began_at = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._began_at = None
                replaced = self._replaced
            if replaced:
                raise WorkerReplaced

    def replace_worker(self, after_seconds: float) -> bool:
        """Replaces the thread if its current computation has taken longer than this; returns whether it did."""
        with self._lock:
            began_at = self._began_at
            self._replaced = began_at is not None and time.monotonic() - began_at > after_seconds
            return self._replaced


class NotFinite(InferenceFailed):
    """The model's output for an input has a NaN or an infinity, by the version's fault or by the input's."""


class Bisection:
    """Computes rows together. If that fails, computes each half separately, down to single rows.

    So a failing row does not affect other rows, and rows that are too many for the memory are computed in smaller
    batches.
    """

    def __init__(self, backbone: Backbone, runner: Runner, guard: ComputeGuard, graphs: "Graphs | None" = None) -> None:
        self._backbone = backbone
        self._runner = runner
        self._guard = guard
        self._graphs = graphs

    def compute(self, rows: Sequence[Row], *, record_gates: bool) -> list[RowOutput | PeltierError]:
        """One output or error per row; raises nothing but `WorkerReplaced`."""
        if not rows:
            return []
        try:
            return self._forward(rows, record_gates=record_gates)
        except WorkerReplaced:
            raise
        except BaseException as failure:
            # Only for one row, because a large batch would otherwise log many tracebacks of the same row.
            logger.warning("%d rows failed together: %r", len(rows), failure, exc_info=len(rows) == 1)
            error = blame(failure)
        # Not in the handler, where the traceback still keeps the tensors of the pass.
        if isinstance(error, Unavailable):
            self._free_memory()
        if len(rows) == 1:
            return [error]
        middle = len(rows) // 2
        halves = (rows[:middle], rows[middle:])
        return [output for half in halves for output in self.compute(half, record_gates=record_gates)]

    def _forward(self, rows: Sequence[Row], *, record_gates: bool) -> list[RowOutput | PeltierError]:
        with self._guard.computing():
            outputs = forward(self._backbone, rows, record_gates=record_gates, graphs=self._graphs, runner=self._runner)
            return [_finite(output) for output in outputs]

    def _free_memory(self) -> None:
        if self._graphs is not None:
            self._graphs.clear()
        free_memory(self._backbone)


def _finite(output: RowOutput) -> RowOutput | PeltierError:
    # The sum is finite only if all values are. For few values a call of torch, which also releases the GIL, is slower.
    logits = output.logits
    total = sum(logits.flatten().tolist()) if logits.numel() <= _FEW_VALUES else float(logits.sum(dtype=torch.float64))
    if math.isfinite(total):
        return output
    return NotFinite(NOT_FINITE)


def blame(failure: BaseException) -> PeltierError:
    """The error for the caller of a row that failed alone.

    Without enough memory it is `Unavailable`: no task allows an input that is too large for every server, so this
    server lacks memory at the moment. Any other failure is due to the input or its adapter.
    """
    if is_out_of_memory(failure):
        return Unavailable(
            "the server has too little memory for this input at the moment", retry_after=retry_hints.SOON
        )
    return InferenceFailed(f"the model failed on this input with {type(failure).__name__}")


def free_memory(backbone: Backbone) -> None:
    """Frees unused memory, before a smaller batch is tried."""
    gc.collect()
    if backbone.device.type == "cuda":
        torch.cuda.empty_cache()
    else:
        give_back_freed_memory()
