"""The layers of a model for one native call."""

from collections.abc import Sequence
from ctypes import Array, addressof

import torch

from peltier_backbone.attention.relative import RelativeBias
from peltier_backbone.attention.rotary import Rotary
from peltier_backbone.bert.bert import Bert
from peltier_backbone.bert.layer import Layer as BertLayer
from peltier_backbone.bert.positions import DisentangledPositions
from peltier_backbone.linear.linear import Linear
from peltier_backbone.linear.norm import Norm, RMSNorm
from peltier_backbone.model import Model
from peltier_backbone.modernbert.modernbert import Layer as ModernBertLayer
from peltier_backbone.modernbert.modernbert import ModernBert
from peltier_backbone.native.program import ACTIVATIONS
from peltier_backbone.native.stack import FrozenMap, NativeStack, StackLayer, StackLayout, StackNorm, Stacks
from peltier_backbone.t5.sublayers import CrossAttention, FeedForward, SelfAttention
from peltier_backbone.t5.t5 import T5

_T5Layer = tuple[SelfAttention, CrossAttention | None, FeedForward]
_NO_MAP, _NO_NORM = FrozenMap(None, None, None, 0, 0), StackNorm(None, None, 0)


def lay_out(model: Model) -> Stacks | None:
    """The layers of `model` and their final norms for the kernels; None if these do not compute its maps, which are all
    of one kernel."""
    match model:
        case T5(encoder=encoder, decoder=decoder):
            read = [(block.attention, None, block.feed_forward) for block in encoder.blocks]
            written = [(block.own, block.cross, block.feed_forward) for block in decoder.blocks]
            output = encoder.blocks[0].attention.output
            if output.place() is None:
                return None
            return Stacks(
                _lay_out_t5(read, encoder.norm, 2 * len(read), encoder.bias, output.packed_by),
                _lay_out_t5(written, decoder.norm, decoder.norm_index, decoder.bias, output.packed_by),
            )
        case ModernBert(layers=layers):
            output = layers[0].attention.output
            return None if output.place() is None else Stacks(_lay_out_modernbert(model, output.packed_by))
        case Bert(layers=bert_layers):
            output = bert_layers[0].attention_output
            return None if output.place() is None else Stacks(_lay_out_bert(model, output.packed_by))


def _map(linear: Linear) -> FrozenMap:
    placed = linear.place()
    assert placed is not None, "a stack has only maps of the native kernels"
    return placed


def _norm(norm: Norm, index: int) -> StackNorm:
    return StackNorm(norm.weight.data_ptr(), None if norm.bias is None else norm.bias.data_ptr(), index)


def _lay_out_bert(model: Bert, packed_by: object) -> NativeStack:
    layers, num_heads = model.layers, model.config.num_heads
    placed = (StackLayer * len(layers))(*(_bert_layer(index, layer) for index, layer in enumerate(layers)))
    if model.rotary is not None:
        for placed_layer in placed:
            placed_layer.turns = model.rotary.turns.data_ptr()
    like = layers[0].attention_norm
    hidden = len(like.weight)
    layout = StackLayout(
        layers=addressof(placed), count=len(placed), norms_half=like.weight.dtype == torch.bfloat16, hidden=hidden,
        heads=num_heads, size=hidden // num_heads, activation=ACTIVATIONS[layers[0].activation],
        gated=layers[0].gated, post=True, centered=True, rounded=model.rounded, eps=like.eps,
        scale=(hidden // num_heads) ** -0.5 if model.positions is None else model.positions.scale,
    )  # fmt: skip
    if isinstance(model.positions, DisentangledPositions):
        layout.distances = _lay_out_distances(model.positions, placed)
    return NativeStack(layout, (placed, model), packed_by)


def _lay_out_distances(positions: DisentangledPositions, placed: Array[StackLayer]) -> int:
    """Gives each layer its tables; returns the number of their columns."""
    for name, table in positions.tables():
        for layer, own in zip(placed, table, strict=True):
            setattr(layer, name, own.data_ptr())
    return next(table.shape[-1] for _, table in positions.tables())


def _bert_layer(index: int, layer: BertLayer) -> StackLayer:
    query_key_value, attention_output, expand, contract = map(_map, layer.maps())
    return StackLayer(
        own_norm=_norm(layer.attention_norm, 2 * index + 1), feed_norm=_norm(layer.output_norm, 2 * index + 2),
        query_key_value=query_key_value, output=attention_output, expand=expand, contract=contract,
        block=index, attention=index,
    )  # fmt: skip


def _lay_out_modernbert(model: ModernBert, packed_by: object) -> NativeStack:
    config, layers, final = model.config, model.layers, model.final_norm
    placed = (StackLayer * len(layers))(
        *(_modernbert_layer(layer, config.window, model.rotary(layer)) for layer in layers)
    )
    layout = StackLayout(
        layers=addressof(placed), count=len(placed), final=_norm(final, 2 * len(layers)),
        norms_half=final.weight.dtype == torch.bfloat16, hidden=config.hidden_size, heads=config.num_heads,
        size=config.head_size, activation=ACTIVATIONS[layers[0].feed_forward.kind], gated=True, post=False,
        centered=final.centered, rounded=model.rounded, eps=final.eps, scale=config.head_size**-0.5,
    )  # fmt: skip
    return NativeStack(layout, (placed, model), packed_by)


def _modernbert_layer(layer: ModernBertLayer, window: int, rotary: Rotary) -> StackLayer:
    attention, feed_forward = layer.attention, layer.feed_forward
    return StackLayer(
        own_norm=_NO_NORM if attention.norm is None else _norm(attention.norm, attention.norm_index),
        feed_norm=_norm(feed_forward.norm, feed_forward.norm_index),
        query_key_value=_map(attention.query_key_value), output=_map(attention.output),
        expand=_map(feed_forward.intermediate), contract=_map(feed_forward.output), block=attention.number,
        attention=attention.number, turns=rotary.turns.data_ptr(), window=window if attention.local else 0,
    )  # fmt: skip


def _lay_out_t5(
    layers: Sequence[_T5Layer], final: RMSNorm, final_index: int, bias: RelativeBias, packed_by: object
) -> NativeStack:
    """`layers`, whose self-attentions have the `bias`, and their final norm."""
    placed = (StackLayer * len(layers))(*map(_t5_layer, layers))
    own, _, feed_forward = layers[0]
    layout = StackLayout(
        layers=addressof(placed), count=len(layers), final=_norm(final, final_index),
        norms_half=final.weight.dtype == torch.bfloat16, hidden=len(final.weight), heads=bias.num_heads,
        size=_map(own.output).inner // bias.num_heads, activation=ACTIVATIONS[feed_forward.kind],
        gated=feed_forward.gated, post=False, centered=False, rounded=False, block_biases=bias.by_block,
        eps=final.eps, scale=1,
    )  # fmt: skip
    return NativeStack(layout, (placed, layers, final), packed_by)


def _t5_layer(layer: _T5Layer) -> StackLayer:
    own, cross, feed_forward = layer
    return StackLayer(
        _norm(own.norm, own.norm_index),
        _norm(own.norm, 0) if cross is None else _norm(cross.norm, cross.norm_index),
        _norm(feed_forward.norm, feed_forward.norm_index), _map(own.query_key_value), _map(own.output),
        _NO_MAP if cross is None else _map(cross.query), _NO_MAP if cross is None else _map(cross.output),
        _map(feed_forward.intermediate), _map(feed_forward.output),
        own.block, own.attention, 0 if cross is None else cross.attention,
    )  # fmt: skip
