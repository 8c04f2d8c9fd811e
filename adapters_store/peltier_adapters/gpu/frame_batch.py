"""Batches by the Triton kernels of a GPU, each with one copy from the host and one back (`frame.py`, `t5_frame.py`)."""

from collections.abc import Sequence

from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.cache import Cache
from peltier_backbone.decoding.likeliest import find_likeliest
from torch import Tensor

from peltier_adapters.batch import scoring
from peltier_adapters.batch.row import Row, RowOutput, group_rows, read_gates, with_gates
from peltier_adapters.batch.runner import Steps
from peltier_adapters.gpu.frame import Frame, Shape
from peltier_adapters.gpu.gated_model import with_gate_kernels
from peltier_adapters.gpu.step_frame import FrameSteps, join_frame
from peltier_adapters.gpu.t5_frame import read_trees


class FrameBatch:
    """Implements `Runner`."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = with_gate_kernels(backbone)

    @property
    def shares_blocks(self) -> bool:
        """A frame has all rows in all layers."""
        return False

    def run(self, rows: Sequence[Row], *, record_gates: bool = False) -> list[RowOutput]:
        """See `Runner`."""
        backbone, groups = self._backbone, group_rows(rows, record_gates=record_gates)
        if backbone.config.generates:
            trees = scoring.list_trees(rows)
            logits, steps = read_trees(backbone, rows, groups, trees, scoring.list_steps(trees))
            outputs = scoring.sum_labels(trees, logits, steps)
        else:
            frame = Frame(backbone, Shape.of(rows))
            frame.load(rows)
            frame.run(groups)
            outputs = frame.read(rows)
        return with_gates(outputs, read_gates(groups), backbone.config.num_layers)

    def join(self, rows: Sequence[Row], copies: Sequence[int], cache: Cache) -> list[list[int]]:
        """See `Runner`."""
        return join_frame(self._backbone, rows, copies, cache)

    def arrange(self, rows: Sequence[Row], slots: Sequence[int], cache: Cache) -> Steps:
        """See `Runner`."""
        return FrameSteps(self._backbone, rows, slots, cache)

    def find_likeliest(self, logits: Tensor) -> list[tuple[int, float]]:
        """See `Runner`."""
        return find_likeliest(logits)
