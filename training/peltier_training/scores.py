"""The outputs of rows, by the server's own forward."""

from collections.abc import Sequence

from peltier_adapters.batch import forward
from peltier_adapters.row import Row
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_training.errors import NotFiniteError

_BATCH_ROWS = 32


def score_rows(backbone: Backbone, rows: Sequence[Row]) -> list[Tensor]:
    """One output a row, batch by batch; a `NotFiniteError` where one is no number."""
    batches = [rows[first : first + _BATCH_ROWS] for first in range(0, len(rows), _BATCH_ROWS)]
    found = [output.logits for batch in batches for output in forward(backbone, batch)]
    if not all(bool(one.isfinite().all()) for one in found):
        raise NotFiniteError("the adapter's outputs are not finite numbers")
    return found
