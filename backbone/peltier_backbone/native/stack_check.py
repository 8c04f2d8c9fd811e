"""Compares the native call of all layers with torch before the first request: an encoder whose rows have adapters, and
a step of a decoder."""

from collections.abc import Callable
from ctypes import addressof
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.native.example_layer import ExampleLayer, Sizes, draw
from peltier_backbone.native.library import Library
from peltier_backbone.native.program import ACTIVATIONS
from peltier_backbone.native.rows import NO_OPS, LayerKeys, PlacedRow, PlacedRows, StackRows
from peltier_backbone.native.stack import FrozenMap, NativeStack, StackLayer, StackLayout, StackNorm

_LENGTHS, _WIDTH, _HEADS, _INNER, _EPS = [5, 3, 1], 36, 2, 50, 1e-5
_SIZE = _WIDTH // _HEADS

# The name of what was computed, its result, and what torch computes.
Compare = Callable[[str, Tensor, Tensor], None]


def check_stack(library: Library, compare: Compare) -> None:
    """Calls `compare` for each kind of stack."""
    compare("layers of an encoder", *_encode(library))
    compare("layers of a decoder", *_decode(library))


class _Maps:
    """Frozen maps and norm weights, which it keeps alive."""

    def __init__(self, library: Library) -> None:
        self._library, self._kept = library, list[object]()

    def place(self, weight: Tensor, bias: Tensor | None = None) -> FrozenMap:
        packed = self._library.pack(weight)
        self._kept.append((packed, bias))
        outer, inner = weight.shape
        return FrozenMap(None, packed.data.data_ptr(), None if bias is None else bias.data_ptr(), inner, outer)

    def run(self, layer: StackLayer, x: Tensor, rows: StackRows, **fields: Any) -> Tensor:
        """The states after one layer."""
        layout = StackLayout(
            layers=addressof(layer), count=1, hidden=_WIDTH, heads=_HEADS, size=_SIZE, eps=_EPS, **fields
        )  # fmt: skip
        return self._library.run_stack(NativeStack(layout, (layer, self._kept), self._library), x, rows, NO_OPS)


def _norm(weight: Tensor, bias: Tensor | None = None, index: int = 0) -> StackNorm:
    return StackNorm(weight.data_ptr(), None if bias is None else bias.data_ptr(), index)


def _attend(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """One row's context; keys and values are [heads, keys, size]."""
    heads = query.view(len(query), _HEADS, _SIZE).transpose(0, 1)
    return F.scaled_dot_product_attention(heads, keys, values, scale=scale).transpose(0, 1).flatten(1)


def _by_head(x: Tensor) -> Tensor:
    return x.view(len(x), _HEADS, _SIZE).transpose(0, 1)


def _encode(library: Library) -> tuple[Tensor, Tensor]:
    """The first two of four rows have one adapter, the third has another one. Heads share keys and values."""
    layer = ExampleLayer(Sizes([5, 3, 1, 4], _WIDTH, _HEADS, _INNER, [(2, 7), (1, 3), (1, 0)], sharing=_HEADS))
    return layer.by_library(library).run(), layer.by_torch()


def _decode(library: Library) -> tuple[Tensor, Tensor]:
    """Row r has r tokens before it, and sees an encoded row."""
    num = len(_LENGTHS)
    x, store, memory = draw(num, _WIDTH), draw(2, num, _HEADS, num, _SIZE), draw(sum(_LENGTHS), 2 * _WIDTH)
    qkv, out, query, cross = (draw(outer, _WIDTH) for outer in (3 * _WIDTH, _WIDTH, _WIDTH, _WIDTH))
    expand, contract, weights = draw(2 * _INNER, _WIDTH), draw(_WIDTH, _INNER), draw(4, _WIDTH) + 1
    maps, expected = _Maps(library), _step_by_torch(x, store.clone(), memory, (qkv, out, query, cross), weights)
    layer = StackLayer(
        own_norm=_norm(weights[0]), cross_norm=_norm(weights[1]), feed_norm=_norm(weights[2]),
        query_key_value=maps.place(qkv), output=maps.place(out), query=maps.place(query),
        cross_output=maps.place(cross), expand=maps.place(expand), contract=maps.place(contract),
    )  # fmt: skip
    first = [row * _HEADS * num for row in range(num)]
    starts = accumulate(_LENGTHS, initial=0)
    seen = [PlacedRow(row, 1, start, keys) for row, (start, keys) in enumerate(zip(starts, _LENGTHS, strict=False))]
    rows = StackRows(
        PlacedRows.place([PlacedRow(row, 1, key, row + 1) for row, key in enumerate(first)]), PlacedRows.place(seen),
        LayerKeys.of([(memory[:, :_WIDTH], memory[:, _WIDTH:])], _SIZE),
        LayerKeys.of([(store[0].view(-1, _SIZE), store[1].view(-1, _SIZE))], num * _SIZE),
        torch.tensor([key + row for row, key in enumerate(first)]),
    )  # fmt: skip
    fields = {"activation": ACTIVATIONS["relu"], "gated": True, "scale": 1.0, "final": _norm(weights[3])}
    found = maps.run(layer, x, rows, **fields)
    active, factor = F.linear(F.rms_norm(expected, (_WIDTH,), weights[2], _EPS), expand).chunk(2, -1)
    expected = expected + F.linear(F.relu(active) * factor, contract)
    return found, F.rms_norm(expected, (_WIDTH,), weights[3], _EPS)


def _step_by_torch(x: Tensor, store: Tensor, memory: Tensor, maps: tuple[Tensor, ...], weights: Tensor) -> Tensor:
    """The states after both attentions."""
    qkv, out, query, cross = maps
    own, *pairs = F.linear(F.rms_norm(x, (_WIDTH,), weights[0], _EPS), qkv).chunk(3, -1)
    contexts = []
    for row in range(len(x)):
        for kept, new in zip(store, pairs, strict=True):
            kept[row, :, row] = new[row].view(_HEADS, _SIZE)
        keys, values = store[:, row, :, : row + 1]
        contexts.append(_attend(own[row : row + 1], keys, values, 1.0))
    x = x + F.linear(torch.cat(contexts), out)
    asked = F.linear(F.rms_norm(x, (_WIDTH,), weights[1], _EPS), query)
    contexts = []
    for row, encoded in enumerate(torch.split(memory, _LENGTHS)):
        keys, values = map(_by_head, encoded.chunk(2, -1))
        contexts.append(_attend(asked[row : row + 1], keys, values, 1.0))
    return x + F.linear(torch.cat(contexts), cross)
