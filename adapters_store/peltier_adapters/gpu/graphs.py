"""Replays whole batches of encoders from CUDA graphs. BERT-base with four presets in a batch takes 147 kernel launches,
and small batches wait for the host between them. A graph takes one launch, but its sizes and addresses are fixed at its
capture.

A frame (`frame.py`) computes a batch only from one tensor of integers: tokens, the starts of rows, and for each
row the addresses of its adapter's weights and program. So one graph serves every batch that its shape covers, with any
adapters of its banks, in any order:

1. The numbers of tokens, of rows, and of tokens of the longest row are rounded up (`round_shape`). No row
   has the additional tokens, and additional rows have no tokens. No output depends on either.
2. A graph has all banks that have occurred before its capture. A launch for a site at which no row of the batch has an
   op ends at once.
3. Outputs are copied to separate tensors. So no data in the memory of a graph is needed after its replay, and all
   graphs share one memory pool, in any order of replays.

A shape is captured when it has occurred often enough. `benchmarks/gpu/graph_hits.py` simulates how many
batches find a graph. T5, recorded gates and batches of more than 4,096 tokens run without graphs. Only
`capture.py` needs a GPU; the rest also works with a plain call instead of a replay.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakSet

from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.batch.row import Row
from peltier_adapters.gpu.frame import Frame, Shape
from peltier_adapters.residency.bank import Bank

# The largest batch of a server's default settings.
MAX_TOKENS = 4096
_MIN_TOKENS = 32
_MIN_ROWS = 8
_MIN_ROW_TOKENS = 16

logger = logging.getLogger(__name__)

_MAX_GRAPHS = 64
# A capture costs as much as three forward passes, and seconds if it compiles a kernel for the first time.
_CAPTURE_AFTER = 4
# When all graphs are in use, a new shape must occur this many times as often before it replaces one. With more shapes
# than graphs, frequent captures would cost more than the graphs save.
_REPLACE_FACTOR = 8
_MAX_COUNTED = 1024

# Captures the device work of a call. The returned call repeats this work on the device.
Capture = Callable[[Callable[[], None]], Callable[[], None]]


def round_shape(shape: Shape) -> Shape | None:
    """A shape that covers `shape` and is shared by many batches; None if no graph serves it."""
    if shape.tokens > MAX_TOKENS:
        return None
    return shape._replace(
        tokens=round_tokens(shape.tokens),
        rows=max(round_up(shape.rows), _MIN_ROWS),
        longest=max(round_up(shape.longest), _MIN_ROW_TOKENS),
    )


def round_up(count: int) -> int:
    """The smallest power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()


def round_tokens(count: int) -> int:
    """`count`, rounded up to a multiple of max(32, p / 4), where p is the largest power of two below `count`. So there
    are few different sizes."""
    step = max(round_up(count) // 8, _MIN_TOKENS)
    return -(-count // step) * step


@dataclass(frozen=True)
class _Graph:
    frame: Frame
    replay: Callable[[], None]


class Graphs:
    """Keeps at most `max_graphs` graphs and evicts the least recently used. After a failed capture it keeps none and
    captures no more. Use it from one thread at a time, in `inference_mode`.

    A graph has all banks that have occurred, because a bank without rows in a batch costs nearly nothing.
    """

    def __init__(
        self,
        backbone: Backbone,
        capture: Capture,
        *,
        max_graphs: int = _MAX_GRAPHS,
        capture_after: int = _CAPTURE_AFTER,
    ) -> None:
        self._backbone, self._capture = backbone, capture
        self._max_graphs, self._capture_after = max_graphs, capture_after
        self._graphs: OrderedDict[Shape, _Graph] = OrderedDict()
        # How often sizes without a graph have occurred.
        self._seen: OrderedDict[tuple[int, ...], int] = OrderedDict()
        self._failed = False
        self._bodies, self._heads = WeakSet[Bank](), WeakSet[Bank]()

    def __len__(self) -> int:
        return len(self._graphs)

    def clear(self) -> None:
        """Free all graphs and their memory. Shapes that occur again can get new graphs."""
        self._graphs.clear()

    def compute(self, rows: Sequence[Row]) -> Sequence[Tensor] | None:
        """The logits of each row; None if there is no graph for `rows`."""
        shape = round_shape(Shape.of(rows))
        if shape is None or self._failed:
            return None
        self._bodies.update(shape.bodies)
        self._heads.update(shape.heads)
        graph = self._find(shape)
        if graph is None:
            graph = self._make(shape, rows) if self._is_due(shape) else None
        if graph is None:
            return None
        graph.frame.load(rows)
        graph.replay()
        return graph.frame.read(rows)

    def _find(self, shape: Shape) -> _Graph | None:
        own = next((one for one in self._graphs if one.tokens == shape.tokens and one.covers(shape)), None)
        if own is None:
            return None
        self._graphs.move_to_end(own)
        return self._graphs[own]

    def _is_due(self, shape: Shape) -> bool:
        sizes = tuple(shape[:3])
        self._seen[sizes] = self._seen.pop(sizes, 0) + 1
        if len(self._seen) > _MAX_COUNTED:
            self._seen.popitem(last=False)
        factor = 1 if len(self._graphs) < self._max_graphs else _REPLACE_FACTOR
        return self._seen[sizes] >= factor * self._capture_after

    def _make(self, shape: Shape, rows: Sequence[Row]) -> _Graph | None:
        del self._seen[tuple(shape[:3])]
        whole = shape._replace(bodies=frozenset(self._bodies), heads=frozenset(self._heads))
        for own in [one for one in self._graphs if one.tokens == whole.tokens and whole.covers(one)]:
            del self._graphs[own]  # the new one serves its batches
        if len(self._graphs) >= self._max_graphs:
            self._graphs.popitem(last=False)
        try:
            frame = Frame(self._backbone, whole)
            frame.load(rows)
            self._graphs[whole] = _Graph(frame, self._capture(frame.run))
        except Exception:  # no memory, or an error of a library
            # What a failed capture leaves of the shared memory pool is unknown.
            logger.warning("no graph of %s; all batches run without graphs from now on", whole, exc_info=True)
            self.clear()
            self._failed = True
            return None
        return self._graphs[whole]
