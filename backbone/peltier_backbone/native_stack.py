"""Runs all layers of a T5's encoder or decoder in one native call."""

from collections.abc import Iterator, Sequence
from ctypes import addressof
from typing import Protocol

import torch
from torch import Tensor

from peltier_backbone.adaptation import Adaptation
from peltier_backbone.linear import Linear
from peltier_backbone.native.library import serving_library
from peltier_backbone.native.program import ACTIVATIONS, Table
from peltier_backbone.native.stack import FrozenMap, NativeStack, StackLayer, StackLayout, StackNorm, StackRows
from peltier_backbone.norm import RMSNorm
from peltier_backbone.sublayers import CrossAttention, FeedForward, SelfAttention

Layer = tuple[SelfAttention, CrossAttention | None, FeedForward]
_NONE = FrozenMap(None, None, 0, 0)


class PlacedView(Protocol):
    """The keys that the queries of each row see."""

    def place(self, prefixes: Table | None) -> StackRows:
        """The rows for the kernels. `prefixes`, if there are any, are those of whole rows or of single tokens."""


def run_stack(stack: NativeStack | None, x: Tensor, view: PlacedView, adaptation: Adaptation) -> Tensor | None:
    """The states after the final norm of embedded tokens `x`, both [tokens, hidden]. None if Python must call the
    layers one by one: with other kernels, with gradients, or if not all of the adaptation is native."""
    library = serving_library(x.device, x.dtype)
    ops = None if stack is None or library is None else adaptation.place_ops()
    if stack is None or library is None or ops is None:
        return None
    return library.run_stack(stack, x, view.place(ops.table if ops.prefixed else None), ops)


def lay_out(layers: Sequence[Layer], final: RMSNorm, final_index: int, num_heads: int) -> NativeStack | None:
    """`layers` and their final norm for the kernels; None if these do not compute all maps."""
    if any(linear.place() is None for layer in layers for linear in _maps(layer)):
        return None
    placed = (StackLayer * len(layers))(*map(_lay_out_layer, layers))
    own, _, feed_forward = layers[0]
    layout = StackLayout(
        layers=addressof(placed), count=len(layers), final=_norm(final, final_index),
        norms_half=final.weight.dtype == torch.bfloat16, hidden=len(final.weight), heads=num_heads,
        size=_map(own.output).inner // num_heads, activation=ACTIVATIONS[feed_forward.kind], gated=feed_forward.gated,
        eps=final.eps,
    )  # fmt: skip
    return NativeStack(layout, (placed, layers, final))


def _lay_out_layer(layer: Layer) -> StackLayer:
    own, cross, feed_forward = layer
    return StackLayer(
        _norm(own.norm, own.norm_index),
        _norm(own.norm, 0) if cross is None else _norm(cross.norm, cross.norm_index),
        _norm(feed_forward.norm, feed_forward.norm_index),
        _map(own.query_key_value), _map(own.output),
        _NONE if cross is None else _map(cross.query), _NONE if cross is None else _map(cross.output),
        _map(feed_forward.intermediate), _map(feed_forward.output),
        own.block, own.attention, 0 if cross is None else cross.attention,
    )  # fmt: skip


def _maps(layer: Layer) -> Iterator[Linear]:
    own, cross, feed_forward = layer
    yield from (own.query_key_value, own.output, feed_forward.intermediate, feed_forward.output)
    if cross is not None:
        yield from (cross.query, cross.output)


def _map(linear: Linear) -> FrozenMap:
    placed = linear.place()
    assert placed is not None, "`lay_out` has asked for all maps"
    return placed


def _norm(norm: RMSNorm, index: int) -> StackNorm:
    return StackNorm(norm.weight.data_ptr(), index)
