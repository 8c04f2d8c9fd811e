"""The layers of ModernBERT for one native call."""

from ctypes import addressof

import torch

from peltier_backbone.attention.rotary import Rotary
from peltier_backbone.linear.linear import Linear
from peltier_backbone.linear.placing import place_map, place_norm
from peltier_backbone.modernbert.layer import Layer
from peltier_backbone.modernbert.modernbert import ModernBert
from peltier_backbone.native.program import ACTIVATIONS
from peltier_backbone.native.stack import FrozenMap, NativeStack, StackLayer, StackLayout, StackNorm, Stacks

_NO_MAP, _NO_NORM = FrozenMap(None, None, None, 0, 0), StackNorm(None, None, 0)


def lay_out(model: ModernBert) -> Stacks | None:
    """The layers of `model` and their final norm for the kernels; None if these do not compute all maps."""
    config, layers, final = model.config, model.layers, model.final_norm
    if any(linear.place() is None for layer in layers for linear in _maps(layer)):
        return None
    placed = (StackLayer * len(layers))(
        *(_lay_out_layer(layer, config.window, model.rotary(layer)) for layer in layers)
    )
    layout = StackLayout(
        layers=addressof(placed), count=len(placed), final=place_norm(final, 2 * len(layers)),
        norms_half=final.weight.dtype == torch.bfloat16, hidden=config.hidden_size, heads=config.num_heads,
        size=config.head_size, activation=ACTIVATIONS[layers[0].feed_forward.kind], gated=True, post=False,
        centered=final.centered, rounded=model.rounded, eps=final.eps, scale=config.head_size**-0.5,
    )  # fmt: skip
    return Stacks(NativeStack(layout, (placed, model), _maps(layers[0])[0].packed_by))


def _lay_out_layer(layer: Layer, window: int, rotary: Rotary) -> StackLayer:
    attention, feed_forward = layer.attention, layer.feed_forward
    return StackLayer(
        own_norm=_NO_NORM if attention.norm is None else place_norm(attention.norm, attention.norm_index),
        feed_norm=place_norm(feed_forward.norm, feed_forward.norm_index),
        query_key_value=place_map(attention.query_key_value), output=place_map(attention.output), query=_NO_MAP,
        cross_output=_NO_MAP, expand=place_map(feed_forward.intermediate), contract=place_map(feed_forward.output),
        block=attention.number, attention=attention.number, turns=rotary.turns.data_ptr(),
        window=window if attention.local else 0,
    )  # fmt: skip


def _maps(layer: Layer) -> tuple[Linear, ...]:
    attention, feed_forward = layer.attention, layer.feed_forward
    return attention.query_key_value, attention.output, feed_forward.intermediate, feed_forward.output
