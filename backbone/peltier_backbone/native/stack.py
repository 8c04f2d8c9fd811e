"""All layers of an encoder or a decoder as the kernels read them (`stack.h`)."""

from collections.abc import Iterator
from ctypes import Structure, sizeof
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple, Self

from peltier_backbone.native.interface import c_struct


@c_struct("frozen_map")
class FrozenMap(Structure):
    """A packed weight, quantised or not, and its bias."""


@c_struct("stack_norm")
class StackNorm(Structure):
    """The backbone's weights of a norm, and its number."""


@c_struct("layer")
class StackLayer(Structure):
    """The maps and norms of a layer, and its numbers."""


@c_struct("stack")
class StackLayout(Structure):
    """The layers, and what they share."""


@dataclass(frozen=True)
class NativeStack:
    """The layers of an encoder or decoder; `kept` owns what `layout` points to. Only the library that packed the maps
    reads them."""

    layout: StackLayout
    kept: object
    packed_by: object

    def part(self, first: int, end: int) -> Self:
        """Layers `first` to `end` - 1. A final norm follows the last layer only. Layers that each have their own biases
        are not divided, because a call finds the biases of a layer by its number from the first one on."""
        assert not self.layout.block_biases, "only encoders without biases of their own run in parts"
        layout = StackLayout.from_buffer_copy(self.layout)
        layout.layers += first * sizeof(StackLayer)
        if end < self.layout.count:
            layout.final = StackNorm(None, None, 0)
        layout.count = end - first
        return replace(self, layout=layout)

    def places(self) -> Iterator[tuple[str, int]]:
        """The sites of its layers at which adapters act, with their numbers, in the order of the computation."""
        for layer in (StackLayer * self.layout.count).from_address(self.layout.layers):
            yield from product(("query_key_value", "prefix", "attention_output"), (layer.attention,))
            yield "attention", layer.block
            if layer.query.outer:
                yield from product(("query", "prefix", "attention_output"), (layer.cross,))
            yield from product(("intermediate", "activated", "output", "ffn"), (layer.block,))


class Stacks(NamedTuple):
    """The layers of a model: of an encoder, or of both halves of a T5. One library has packed all maps."""

    encoder: NativeStack
    decoder: NativeStack | None = None
