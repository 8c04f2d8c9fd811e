"""Models whose gated feed-forward layers activate in one launch of a Triton kernel."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.bert import Bert
from peltier_backbone.bert.layer import Layer as BertLayer
from peltier_backbone.modernbert.modernbert import Layer, ModernBert
from peltier_backbone.t5.stacks import DecoderBlock, EncoderBlock
from peltier_backbone.t5.sublayers import FeedForward
from peltier_backbone.t5.t5 import T5
from torch import Tensor

from peltier_adapters.gpu.kernels.activation import gate

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
