"""Creates filler rows, which round the number of tokens of a batch up to one of a few sizes.

oneDNN prepares a matrix product for each number of tokens, which takes 0.7 ms and 0.5 MiB, and caches it
(`peltier_backbone.kernel_cache`). If each batch has a different number of tokens, every product is prepared again, and
the cached products fragment the heap, which grows. So the number of tokens is rounded up, by at most a sixteenth.
"""

from collections.abc import Sequence

from peltier_backbone.load import Backbone
from peltier_backbone.packing import Encoded

from peltier_adapters.artifact.label_tree import create_tree
from peltier_adapters.batch.row import Row

# The number of sizes between two powers of two.
_SIZES_OF_AN_OCTAVE = 16
# Every backbone has positions for a row of this length.
_MAX_STEP = 256


def create_fillers(backbone: Backbone, rows: Sequence[Row]) -> list[Row]:
    """At most one filler row without an adapter, to compute with `rows`. On a T5 it also rounds up the number of
    decoder tokens. Empty on a GPU."""
    if not backbone.config.generates:
        return create_encoder_fillers(backbone, rows)
    if backbone.device.type != "cpu":
        return []
    num_nodes = sum(len(row.scored.ids) for row in rows if row.scored is not None)
    label = (0,) * num_missing(num_nodes + 1)
    return [Row(_encoded(1 + num_missing(_num_tokens(rows) + 1)), tree=create_tree(0, 0, [label]))]


def create_encoder_fillers(backbone: Backbone, rows: Sequence[Row]) -> list[Row]:
    """At most one filler row without an adapter, to encode with `rows`. Empty on a GPU."""
    missing = num_missing(_num_tokens(rows))
    return [Row(_encoded(missing))] if missing and backbone.device.type == "cpu" else []


def _num_tokens(rows: Sequence[Row]) -> int:
    return sum(len(row.prompted) for row in rows)


def num_missing(num_tokens: int) -> int:
    """The number of tokens that `num_tokens` lacks to the next size."""
    step = min(_MAX_STEP, max(1, (1 << num_tokens.bit_length()) // (2 * _SIZES_OF_AN_OCTAVE)))
    return -num_tokens % step


def _encoded(num_tokens: int) -> Encoded:
    return Encoded((0,) * num_tokens, (0,) * num_tokens)
