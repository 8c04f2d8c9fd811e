"""The outputs of rows, by the server's own forward."""

from collections.abc import Sequence

from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row, RowOutput
from peltier_backbone.backbone import Backbone

from peltier_training.errors import NotFiniteError

BATCH_ROWS = 32


def run_rows(backbone: Backbone, rows: Sequence[Row], *, record_gates: bool = False) -> list[RowOutput]:
    """One output per row, batch by batch. Raises a `NotFiniteError` if an output is not finite."""
    batches = [rows[first : first + BATCH_ROWS] for first in range(0, len(rows), BATCH_ROWS)]
    found = [output for batch in batches for output in forward(backbone, batch, record_gates=record_gates)]
    if not all(bool(output.logits.isfinite().all()) for output in found):
        raise NotFiniteError("the adapter's outputs are not finite numbers")
    return found
