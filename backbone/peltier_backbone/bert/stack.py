"""The layers of BERT for one native call."""

from ctypes import Array, addressof
from itertools import starmap

import torch

from peltier_backbone.bert.bert import Bert
from peltier_backbone.bert.disentangled_positions import DisentangledPositions
from peltier_backbone.bert.layer import Layer
from peltier_backbone.linear.placing import place_map, place_norm
from peltier_backbone.native.program import ACTIVATIONS
from peltier_backbone.native.stack import NativeStack, StackLayer, StackLayout, Stacks


def lay_out(model: Bert) -> Stacks | None:
    """The layers of `model` for the kernels; None if these do not compute all maps."""
    layers, num_heads = model.layers, model.config.num_heads
    if any(linear.place() is None for layer in layers for linear in layer.maps()):
        return None
    placed = (StackLayer * len(layers))(*starmap(_lay_out_layer, enumerate(layers)))
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
    return Stacks(NativeStack(layout, (placed, model), layers[0].maps()[0].packed_by))


def _lay_out_distances(positions: DisentangledPositions, placed: Array[StackLayer]) -> int:
    """Gives each layer its tables; returns the number of their columns."""
    for name, table in positions.tables():
        for layer, own in zip(placed, table, strict=True):
            setattr(layer, name, own.data_ptr())
    return next(table.shape[-1] for _, table in positions.tables())


def _lay_out_layer(index: int, layer: Layer) -> StackLayer:
    query_key_value, attention_output, expand, contract = map(place_map, layer.maps())
    return StackLayer(
        own_norm=place_norm(layer.attention_norm, 2 * index + 1),
        feed_norm=place_norm(layer.output_norm, 2 * index + 2),
        query_key_value=query_key_value, output=attention_output, expand=expand, contract=contract,
        block=index, attention=index,
    )  # fmt: skip
