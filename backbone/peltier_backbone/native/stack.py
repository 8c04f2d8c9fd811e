"""All layers of an encoder or a decoder as the kernels read them (`stack.h`)."""

from collections.abc import Iterator, Sequence
from ctypes import Structure, addressof, sizeof
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple, Self

import torch
from torch import Tensor

from peltier_backbone.native.interface import INTERFACE, c_struct
from peltier_backbone.native.placed_rows import PlacedRows
from peltier_backbone.native.program import PlacedOps


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


@c_struct("stack_call")
class StackCall(Structure):
    """The states of one call, the keys that its rows see, and the adapters' ops."""


_PlacedKeys = INTERFACE.structs["placed_keys"]


class LayerKeys:
    """Where the keys and values of each layer lie. Keys of the next head begin `head_stride` elements further on."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]], head_stride: int) -> None:
        """`layers` are keys and values of one layout, whose first dimension counts keys."""
        self._kept = layers
        self._layout = (_PlacedKeys * len(layers))(
            *(
                _PlacedKeys(
                    keys.data_ptr(), values.data_ptr(), keys.stride(0), head_stride, keys.dtype == torch.bfloat16
                )
                for keys, values in layers
            )
        )
        self.address = addressof(self._layout)


class StackRows(NamedTuple):
    """Which keys each row's queries see, `cross` in a decoder. Without `own_keys` rows see keys of their batch; with
    them each row is one token, whose key becomes number `places[row]` (int64) before it attends. `positions` (int64)
    are those of tokens, for layers with rotary positions."""

    own: PlacedRows
    cross: PlacedRows | None = None
    cross_keys: LayerKeys | None = None
    own_keys: LayerKeys | None = None
    places: Tensor | None = None
    positions: Tensor | None = None


@dataclass(frozen=True)
class NativeStack:
    """The layers of an encoder or decoder; `kept` owns what `layout` points to. Only the library that packed the maps
    reads them."""

    layout: StackLayout
    kept: object
    packed_by: object

    def part(self, first: int, end: int) -> Self:
        """Layers `first` to `end` - 1. A final norm follows the last layer only."""
        if (first, end) == (0, self.layout.count):
            return self
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
            yield from product(("intermediate", "output", "ffn"), (layer.block,))

    def place(self, x: Tensor, y: Tensor, rows: StackRows, ops: PlacedOps) -> StackCall:
        """The call that computes y from x, both [tokens, hidden]. It is valid as long as its arguments."""
        own, cross, cross_keys, own_keys, places, positions = rows
        # Fields that are not given are zero.
        call = StackCall(
            x=x.data_ptr(), y=y.data_ptr(), tokens=x.size(0), half=x.dtype is torch.bfloat16,
            rows=own.layout.data_ptr(), num_rows=len(own), prefixed=ops.prefixed, sites=ops.sites_address,
        )  # fmt: skip
        if ops.table is not None:
            call.table = ops.table.layout
        if ops.gates is not None:
            call.gates, call.gate_stride = ops.gates.data_ptr(), ops.gate_stride
        if cross is not None:
            call.cross_rows, call.num_cross_rows = cross.layout.data_ptr(), len(cross)
        if cross_keys is not None:
            call.cross = cross_keys.address
        if own_keys is not None:
            call.own, call.once = own_keys.address, True
        if places is not None:
            call.places = places.data_ptr()
        if positions is not None:
            call.positions = positions.data_ptr()
        return call
