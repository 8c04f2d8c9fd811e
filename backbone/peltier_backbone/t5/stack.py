"""The layers of T5's encoder and decoder for one native call."""

from collections.abc import Iterator, Sequence
from ctypes import addressof

import torch

from peltier_backbone.attention.relative import RelativeBias
from peltier_backbone.linear.linear import Linear
from peltier_backbone.linear.norm import RMSNorm
from peltier_backbone.linear.placing import place_map, place_norm
from peltier_backbone.native.program import ACTIVATIONS
from peltier_backbone.native.stack import FrozenMap, NativeStack, StackLayer, StackLayout, Stacks
from peltier_backbone.t5.sublayers import CrossAttention, FeedForward, SelfAttention
from peltier_backbone.t5.t5 import T5

Layer = tuple[SelfAttention, CrossAttention | None, FeedForward]
_NONE = FrozenMap(None, None, None, 0, 0)


def lay_out(model: T5) -> Stacks | None:
    """The layers of `model` and their final norms for the kernels; None if these do not compute all maps."""
    encoder, decoder = model.encoder, model.decoder
    read: list[Layer] = [(block.attention, None, block.feed_forward) for block in encoder.blocks]
    written: list[Layer] = [(block.own, block.cross, block.feed_forward) for block in decoder.blocks]
    if any(linear.place() is None for layer in (*read, *written) for linear in _maps(layer)):
        return None
    return Stacks(
        _lay_out_layers(read, encoder.norm, 2 * len(encoder.blocks), encoder.bias),
        _lay_out_layers(written, decoder.norm, decoder.norm_index, decoder.bias),
    )


def _lay_out_layers(layers: Sequence[Layer], final: RMSNorm, final_index: int, bias: RelativeBias) -> NativeStack:
    """`layers`, whose self-attentions have the `bias`, and their final norm."""
    placed = (StackLayer * len(layers))(*map(_lay_out_layer, layers))
    own, _, feed_forward = layers[0]
    layout = StackLayout(
        layers=addressof(placed), count=len(layers), final=place_norm(final, final_index),
        norms_half=final.weight.dtype == torch.bfloat16, hidden=len(final.weight), heads=bias.num_heads,
        size=place_map(own.output).inner // bias.num_heads, activation=ACTIVATIONS[feed_forward.kind],
        gated=feed_forward.gated, post=False, centered=False, rounded=False, block_biases=bias.by_block,
        eps=final.eps, scale=1,
    )  # fmt: skip
    return NativeStack(layout, (placed, layers, final), next(_maps(layers[0])).packed_by)


def _lay_out_layer(layer: Layer) -> StackLayer:
    own, cross, feed_forward = layer
    return StackLayer(
        place_norm(own.norm, own.norm_index),
        place_norm(own.norm, 0) if cross is None else place_norm(cross.norm, cross.norm_index),
        place_norm(feed_forward.norm, feed_forward.norm_index),
        place_map(own.query_key_value), place_map(own.output),
        _NONE if cross is None else place_map(cross.query), _NONE if cross is None else place_map(cross.output),
        place_map(feed_forward.intermediate), place_map(feed_forward.output),
        own.block, own.attention, 0 if cross is None else cross.attention,
    )  # fmt: skip


def _maps(layer: Layer) -> Iterator[Linear]:
    own, cross, feed_forward = layer
    yield from (own.query_key_value, own.output, feed_forward.intermediate, feed_forward.output)
    if cross is not None:
        yield from (cross.query, cross.output)
