"""The forward of rows of which some may fail."""

import gc
import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row, RowOutput
from peltier_backbone.heap import give_back_freed_memory
from peltier_backbone.load import Backbone
from peltier_client.errors import InferenceFailed, PeltierError, Unavailable

from peltier_server import retry_hints
from peltier_server.runner.compute_guard import ComputeGuard, WorkerReplaced

if TYPE_CHECKING:
    from peltier_adapters.graphs.graphs import Graphs

logger = logging.getLogger(__name__)

# What torch's allocators and libraries say where they raise nothing more particular than a RuntimeError.
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")
# oneDNN says this, and no word more, where it has no memory for the code that it writes for each new size of a batch. A
# size that it cannot compute is refused before that, with "could not create a primitive descriptor for" and the rest.
_NO_MEMORY_FOR_CODE = "could not create a primitive"


class Bisection:
    """Computes rows together, and where that fails each half of them by itself, down to single rows.

    So a row that fails takes down nobody else, and rows that are too many for the memory go on in smaller batches.
    """

    def __init__(self, backbone: Backbone, guard: ComputeGuard, graphs: "Graphs | None" = None) -> None:
        self._backbone = backbone
        self._shift = guard
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
            # A batch of many would else leave as many tracebacks of the one bad row.
            logger.warning("%d rows failed together: %r", len(rows), failure, exc_info=len(rows) == 1)
            error = blame(failure)
        # Only here, because the failure's traceback has kept the tensors of the pass.
        if isinstance(error, Unavailable):
            self._free_memory()
        if len(rows) == 1:
            return [error]
        middle = len(rows) // 2
        halves = (rows[:middle], rows[middle:])
        return [output for half in halves for output in self.compute(half, record_gates=record_gates)]

    def _forward(self, rows: Sequence[Row], *, record_gates: bool) -> list[RowOutput | PeltierError]:
        with self._shift.computing():
            outputs = forward(self._backbone, rows, record_gates=record_gates, graphs=self._graphs)
            return [_finite(output) for output in outputs]

    def _free_memory(self) -> None:
        if self._graphs is not None:
            self._graphs.clear()
        free_memory(self._backbone)


def blame(failure: BaseException) -> PeltierError:
    """What a caller reads whose row has failed alone.

    A row without enough memory is `Unavailable`: no task allows an input that is too large for a server as such, so it
    is the memory that is short just now, here. Any other failure is the input's or its adapter's.
    """
    if _is_out_of_memory(failure):
        return Unavailable("the server has too little memory for this input just now", retry_after=retry_hints.SOON)
    return InferenceFailed(f"the model failed on this input with {type(failure).__name__}")


def free_memory(backbone: Backbone) -> None:
    """Gives back what nothing needs, before less is tried."""
    gc.collect()
    if backbone.device.type == "cuda":
        torch.cuda.empty_cache()
    else:
        give_back_freed_memory()


def _is_out_of_memory(failure: BaseException) -> bool:
    if isinstance(failure, torch.OutOfMemoryError | MemoryError):
        return True
    if not isinstance(failure, RuntimeError):
        return False
    said = str(failure).lower()
    return said == _NO_MEMORY_FOR_CODE or any(words in said for words in _OUT_OF_MEMORY)


def _finite(output: RowOutput) -> RowOutput | PeltierError:
    # A sum is finite only if all of its terms are. torch's own would let another thread have the interpreter, row after
    # row.
    if math.isfinite(sum(output.logits.tolist())):
        return output
    return InferenceFailed("the model's output for this input is not finite")
