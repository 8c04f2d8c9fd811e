"""Batches by the Triton kernels of a GPU, each with one copy from the host and one back (`frame.py`, `t5_frame.py`)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.bert import Bert
from peltier_backbone.bert.layer import Layer as BertLayer
from peltier_backbone.decoding.cache import Cache
from peltier_backbone.decoding.likeliest import find_likeliest
from peltier_backbone.modernbert.modernbert import Layer, ModernBert
from peltier_backbone.t5.stacks import DecoderBlock, EncoderBlock
from peltier_backbone.t5.sublayers import FeedForward
from peltier_backbone.t5.t5 import T5
from torch import Tensor

from peltier_adapters.batch import scoring
from peltier_adapters.batch.row import Row, RowOutput, group_rows, read_gates, with_gates
from peltier_adapters.batch.runner import Steps
from peltier_adapters.gpu.frame import Frame, Shape
from peltier_adapters.gpu.kernels.activation import gate
from peltier_adapters.gpu.t5_frame import FrameSteps, join_frame, read_trees

_Block = TypeVar("_Block", EncoderBlock, DecoderBlock, Layer)


class GatedFeedForward(FeedForward):
    """A gated layer with the kernel."""

    def activate(self, y: Tensor) -> Tensor:
        return gate(y, self.kind)


class GatedBertLayer(BertLayer):
    """A gated layer with the kernel."""

    def activate(self, y: Tensor) -> Tensor:
        return gate(y, self.activation)


def with_gate_kernels(backbone: Backbone) -> Backbone:
    """`backbone` with the kernel in its gated layers; the weights are the same tensors."""
    model = backbone.model
    match model:
        case Bert() if model.config.kind.gated:
            return replace(backbone, model=replace(model, layers=[GatedBertLayer(**vars(la)) for la in model.layers]))
        case ModernBert():
            return replace(backbone, model=replace(model, layers=_gate(model.layers)))
        case T5() if model.config.gated:
            encoder = replace(model.encoder, blocks=_gate(model.encoder.blocks))
            decoder = replace(model.decoder, blocks=_gate(model.decoder.blocks))
            return replace(backbone, model=replace(model, encoder=encoder, decoder=decoder))
        case _:
            return backbone


def _gate(blocks: Sequence[_Block]) -> list[_Block]:
    return [replace(block, feed_forward=GatedFeedForward(**vars(block.feed_forward))) for block in blocks]


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
