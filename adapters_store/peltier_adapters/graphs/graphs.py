"""The graphs of one thread. Decides which shapes get a graph, and when."""

import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.batch.row import Row
from peltier_adapters.graphs.frame import Frame
from peltier_adapters.graphs.shape import Shape, shape_of
from peltier_adapters.residency.bank import Bank

logger = logging.getLogger(__name__)

_MAX_GRAPHS = 32
# A capture costs as much as three forward passes, and seconds if it compiles a kernel for the first time.
_CAPTURE_AFTER = 4
# When all graphs are in use, a new shape must occur this many times as often before it replaces one. With more shapes
# than graphs, frequent captures would cost more than the graphs save.
_REPLACE_FACTOR = 8
_MAX_COUNTED = 1024

# Captures the device work of a call. The returned call repeats this work on the device.
Capture = Callable[[Callable[[], None]], Callable[[], None]]


@dataclass(frozen=True)
class _Graph:
    frame: Frame
    replay: Callable[[], None]


class Graphs:
    """Keeps at most `max_graphs` graphs and evicts the least recently used. Use it from one thread at a time, in
    `inference_mode`."""

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
        # How often shapes without a graph have occurred; -inf for shapes whose capture has failed.
        self._seen: OrderedDict[Shape, float] = OrderedDict()
        self._stacks: WeakValueDictionary[tuple[Bank, int], Tensor] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._graphs)

    def clear(self) -> None:
        """Free all graphs and their memory. Shapes that occur again can get new graphs."""
        self._graphs.clear()

    def pooled(self, rows: Sequence[Row]) -> Mapping[str, Tensor] | None:
        """One vector per row for each kind of pooling, [at least rows, hidden], valid until the next call; None if
        there is no graph for `rows`. `rows` are in `Row.order`."""
        shape = shape_of(rows)
        if shape is None:
            return None
        graph = self._find(shape)
        if graph is None:
            return self._make(shape, rows) if self._is_due(shape) else None
        graph.frame.load(rows)
        graph.replay()
        return graph.frame.pooled

    def _find(self, shape: Shape) -> _Graph | None:
        own = shape if shape in self._graphs else next((one for one in self._graphs if one.covers(shape)), None)
        if own is None:
            return None
        self._graphs.move_to_end(own)
        return self._graphs[own]

    def _is_due(self, shape: Shape) -> bool:
        self._seen[shape] = self._seen.pop(shape, 0) + 1
        if len(self._seen) > _MAX_COUNTED:
            self._seen.popitem(last=False)
        factor = 1 if len(self._graphs) < self._max_graphs else _REPLACE_FACTOR
        return self._seen[shape] >= factor * self._capture_after

    def _make(self, shape: Shape, rows: Sequence[Row]) -> Mapping[str, Tensor] | None:
        del self._seen[shape]
        if len(self._graphs) >= self._max_graphs:
            self._graphs.popitem(last=False)
        try:
            frame = Frame(self._backbone, shape, self._stack_of)
            frame.load(rows)
            self._graphs[shape] = graph = _Graph(frame, self._capture(frame.run))
        except Exception:  # no memory, or an error of a compiler or library; the batch then runs without a graph
            logger.warning("no graph of %s; such batches run without one", shape, exc_info=True)
            self._seen[shape] = -math.inf
            return None
        graph.replay()
        return frame.pooled

    def _stack_of(self, bank: Bank, groups: int) -> Tensor:
        stack = self._stacks.get((bank, groups))
        if stack is None:
            stack = torch.zeros(groups, bank.layout.length, device=self._backbone.device)
            self._stacks[bank, groups] = stack
        return stack
