"""All layers of an encoder or a decoder in the memory layout of the kernels (`stack.c`)."""

from collections.abc import Iterator, Sequence
from ctypes import Structure, addressof, c_double, c_int64, c_void_p, sizeof
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple, Self

import torch
from torch import Tensor

from peltier_backbone.native.placed_rows import PlacedRows
from peltier_backbone.native.program import PlacedOps


class FrozenMap(Structure):
    """`frozen_map` in stack.c."""

    _fields_ = (
        *((name, c_void_p) for name in ("quantized", "packed", "bias")),
        *((name, c_int64) for name in ("inner", "outer")),
    )


class StackNorm(Structure):
    """`stack_norm` in stack.c."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("index", c_int64))


class StackLayer(Structure):
    """`layer` in stack.c."""

    _fields_ = (
        *((name, StackNorm) for name in ("own_norm", "cross_norm", "feed_norm")),
        *((name, FrozenMap) for name in (
            "query_key_value", "output", "query", "cross_output", "expand", "contract",
        )),
        *((name, c_int64) for name in ("block", "attention", "cross")),
        ("turns", c_void_p),
        ("window", c_int64),
    )  # fmt: skip


class StackLayout(Structure):
    """`stack` in stack.c."""

    _fields_ = (
        ("layers", c_void_p),
        ("count", c_int64),
        ("final", StackNorm),
        *((name, c_int64) for name in (
            "norms_half", "hidden", "heads", "size", "activation", "gated", "post", "centered", "rounded",
            "block_biases",
        )),
        *((name, c_double) for name in ("eps", "scale")),
    )  # fmt: skip


class _PlacedKeys(Structure):
    """`placed_keys` in stack.c."""

    _fields_ = (
        ("keys", c_void_p),
        ("values", c_void_p),
        *((name, c_int64) for name in ("stride", "head_stride", "half")),
    )


class StackCall(Structure):
    """`stack_call` in stack.c."""

    _fields_ = (
        *((name, c_void_p) for name in ("x", "y")),
        *((name, c_int64) for name in ("tokens", "half")),
        *((name, c_void_p) for name in ("rows", "cross_rows")),
        *((name, c_int64) for name in ("num_rows", "num_cross_rows")),
        *((name, c_void_p) for name in ("own", "cross", "places", "positions")),
        *((name, c_int64) for name in ("once", "prefixed")),
        ("groups", c_void_p),
        ("num_groups", c_int64),
        *((name, c_void_p) for name in ("starts", "sites", "gates")),
        ("gate_stride", c_int64),
    )


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
        groups, num_groups, starts = (None, 0, None) if ops.table is None else ops.table.arguments
        return StackCall(
            x.data_ptr(), y.data_ptr(), len(x), x.dtype == torch.bfloat16, own.layout.data_ptr(),
            None if cross is None else cross.layout.data_ptr(), len(own), 0 if cross is None else len(cross),
            own_keys and own_keys.address, cross_keys and cross_keys.address,
            None if places is None else places.data_ptr(), None if positions is None else positions.data_ptr(),
            own_keys is not None, ops.prefixed, groups, num_groups, starts,
            ops.sites_address, None if ops.gates is None else ops.gates.data_ptr(), ops.gate_stride,
        )  # fmt: skip
