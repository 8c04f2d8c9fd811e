"""A layer of BERT with adapters, by the native kernels and by torch. The self-check compares both results at odd sizes,
and the trial at start compares both times."""

import math
from collections.abc import Sequence
from ctypes import addressof
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.native.library import Library
from peltier_backbone.native.program import (
    ACTIVATIONS,
    NativeGate,
    NativeNormWeights,
    NativeProgram,
    place_op,
    place_prefix,
    step,
    vector,
)
from peltier_backbone.native.rows import STACK_SITES, PlacedOps, PlacedRows, StackRows, Table, TableGroup
from peltier_backbone.native.stack import FrozenMap, NativeStack, StackLayer, StackLayout, StackNorm

_EPS = 1e-5
_SITES = ("attention", "ffn")


class Sizes(NamedTuple):
    """The sizes of a layer and a batch. Each of `groups` is a number of rows and the width of their bottleneck, 0 for
    rows without an adapter. `sharing` neighbours among the heads share their keys and values. Adapters have a `prefix`
    of so many tokens. With a `window` tokens attend to the prefix and to the tokens at most so far away; `turned`
    queries and keys have rotary positions."""

    lengths: Sequence[int]
    hidden: int
    heads: int
    inner: int
    groups: Sequence[tuple[int, int]]
    sharing: int = 1
    prefix: int = 0
    window: int = 0
    turned: bool = False


class _Adapter(NamedTuple):
    """A bottleneck, the same after attention and after the feed-forward layer, a norm, and a gated prefix."""

    down: Tensor  # [hidden, bottleneck]
    up: Tensor  # [bottleneck, hidden]
    bias: Tensor
    norm: Tensor
    prefix: Tensor  # [2 (keys, values), heads, prefix, head size]
    gate: Tensor  # [hidden]

    @classmethod
    def draw(cls, sizes: Sizes, width: int) -> "_Adapter":
        hidden = sizes.hidden
        prefix = draw(2, sizes.heads, sizes.prefix, hidden // sizes.heads)
        return cls(
            draw(hidden, width), draw(width, hidden), draw(hidden), draw(hidden) + 1, prefix, draw(hidden, 1)[:, 0]
        )


def draw(*shape: int) -> Tensor:
    """Random numbers, the same for each shape, of which a product has about the size of its input."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) * sum(shape))) / math.sqrt(shape[-1])


class ExampleLayer:
    """Random weights of one layer and of the adapters of a batch, and the batch's states, in one dtype."""

    def __init__(self, sizes: Sizes, dtype: torch.dtype = torch.float32) -> None:
        self._sizes, hidden, inner = sizes, sizes.hidden, sizes.inner
        self._starts = list(accumulate(sizes.lengths, initial=0))
        self._x = draw(self._starts[-1], hidden).to(dtype)
        shapes = (
            (hidden + 2 * hidden // sizes.sharing, hidden), (hidden, hidden), (inner, hidden), (hidden, inner),
        )  # fmt: skip
        self._weights = [draw(*shape).to(dtype) for shape in shapes]
        self._biases = [draw(len(weight)) for weight in self._weights]
        self._norm = (draw(hidden) + 1).to(dtype), draw(hidden).to(dtype)
        self._adapters = [_Adapter.draw(sizes, width) if width else None for _, width in sizes.groups]
        self._angles = draw(max(sizes.lengths), hidden // sizes.heads // 2)
        self._turns = torch.cat((self._angles.cos(), self._angles.sin()), 1)
        self._scale = (hidden // sizes.heads) ** -0.5

    def by_library(self, library: Library) -> "NativeExample":
        """The layer as `library` computes it."""
        lengths = self._sizes.lengths
        positions = torch.cat([torch.arange(length) for length in lengths])
        rows = StackRows(PlacedRows.packed(lengths, lengths), positions=positions)
        return NativeExample(library, self._x, self._lay_out(library), rows, self._place_ops())

    def _lay_out(self, library: Library) -> NativeStack:
        packed = [library.pack(weight) for weight in self._weights]
        maps = [
            FrozenMap(None, one.data.data_ptr(), bias.data_ptr(), one.inner, one.outer)
            for one, bias in zip(packed, self._biases, strict=True)
        ]
        norms = [StackNorm(*(one.data_ptr() for one in self._norm), index) for index in range(2)]
        names = ("query_key_value", "output", "expand", "contract")
        layer = StackLayer(
            own_norm=norms[0], feed_norm=norms[1], window=self._sizes.window,
            turns=self._turns.data_ptr() if self._sizes.turned else None, **dict(zip(names, maps, strict=True)),
        )  # fmt: skip
        hidden, heads, half = self._sizes.hidden, self._sizes.heads, self._x.dtype == torch.bfloat16
        layout = StackLayout(
            layers=addressof(layer), count=1, hidden=hidden, heads=heads, size=hidden // heads, eps=_EPS, post=True,
            norms_half=half, centered=True, activation=ACTIVATIONS["gelu"], scale=self._scale,
        )  # fmt: skip
        return NativeStack(layout, (layer, packed, self), library)

    def _place_ops(self) -> PlacedOps:
        groups = [
            TableGroup(rows, None if adapter is None else _program(adapter))
            for (rows, _), adapter in zip(self._sizes.groups, self._adapters, strict=True)
        ]
        table, places = Table(self._sizes.lengths, groups), range(len(STACK_SITES))
        return PlacedOps(table, places, torch.empty(table.max_ops, table.num_rows), prefixed=self._sizes.prefix > 0)

    def by_torch(self) -> Tensor:
        """The states after the layer, [tokens, hidden], as torch computes them."""
        maps = list(zip(self._weights, (bias.to(self._x.dtype) for bias in self._biases), strict=True))
        y = F.linear(self._attend(F.linear(self._x, *maps[0])), *maps[1])
        middle = self._adapt_and_norm(y, self._x)
        return self._adapt_and_norm(F.linear(F.gelu(F.linear(middle, *maps[2])), *maps[3]), middle)

    def _attend(self, qkv: Tensor) -> Tensor:
        """Row by row, in float32, which is faster on a CPU than bfloat16."""
        sizes, num = self._sizes, self._sizes.heads
        shared = num // sizes.sharing
        heads = qkv.float().view(len(qkv), num + 2 * shared, -1).transpose(0, 1)
        adapters = [one for (rows, _), one in zip(sizes.groups, self._adapters, strict=True) for _ in range(rows)]
        contexts = []
        lengths = list(sizes.lengths)
        pieces = zip(torch.split(heads, lengths, 1), torch.split(self._x, lengths), adapters, strict=True)
        for piece, x, adapter in pieces:
            query, key, value = torch.split(piece, [num, shared, shared])
            if sizes.turned:
                query, key = self._turn(query), self._turn(key)
            if sizes.sharing > 1:
                key, value = (one.repeat_interleave(sizes.sharing, 0) for one in (key, value))
            if sizes.prefix and adapter is not None:
                prefix = adapter.prefix * (x.float() @ adapter.gate + adapter.bias[0]).sigmoid().mean()
                key, value = (torch.cat(pair, 1) for pair in zip(prefix, (key, value), strict=True))
            seen = self._seen(query.shape[1], key.shape[1]) if sizes.window else None
            contexts.append(F.scaled_dot_product_attention(query, key, value, seen, scale=self._scale))
        return torch.cat(contexts, 1).transpose(0, 1).flatten(1).to(qkv.dtype)

    def _turn(self, x: Tensor) -> Tensor:
        """x [heads, tokens, size], whose elements d and d + size / 2 are a complex number."""
        angles = self._angles[: x.shape[1]]
        turned = torch.complex(*x.chunk(2, -1)) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat((turned.real, turned.imag), -1).to(self._x.dtype).float()

    def _seen(self, num_tokens: int, num_keys: int) -> Tensor:
        """Which keys each token sees, [tokens, keys]: those of the prefix, and the near ones of its row."""
        places = torch.arange(num_tokens)
        near = (places - places[:, None]).abs() <= self._sizes.window
        return F.pad(near, (num_keys - num_tokens, 0), value=True)

    def _adapt_and_norm(self, y: Tensor, residual: Tensor) -> Tensor:
        """Group by group; a group with an adapter has its own norm weight."""
        weight, bias = self._norm
        states, row = [], 0
        for (rows, _), adapter in zip(self._sizes.groups, self._adapters, strict=True):
            own = slice(self._starts[row], self._starts[row + rows])
            row += rows
            change = 0.0 if adapter is None else F.relu(y[own].float() @ adapter.down) @ adapter.up + adapter.bias
            factor = weight if adapter is None else adapter.norm.to(weight.dtype)
            summed = (y[own] + change).to(y.dtype) + residual[own]
            states.append(F.layer_norm(summed, (y.shape[1],), factor, bias, _EPS))
        return torch.cat(states)


def _program(adapter: _Adapter) -> NativeProgram:
    steps = step(adapter.down, None, activation="relu"), step(adapter.up, adapter.bias)
    ops = [place_op(STACK_SITES.index(site), steps) for site in _SITES]
    if adapter.prefix.numel():
        keys, values = adapter.prefix
        gate = NativeGate(vector(adapter.gate), vector(adapter.bias[:1]), 1, 0)
        ops.append(place_prefix(STACK_SITES.index("prefix"), keys, values, gate))
    norms = {index: NativeNormWeights(vector(adapter.norm), vector(None)) for index in range(2)}
    return NativeProgram(ops, len(STACK_SITES), norms, 2, adapter)


class NativeExample(NamedTuple):
    """A layer and a batch in the memory layout of the kernels."""

    library: Library
    x: Tensor
    stack: NativeStack
    rows: StackRows
    ops: PlacedOps

    def run(self) -> Tensor:
        """The states after the layer, [tokens, hidden]."""
        return self.library.run_stack(self.stack, self.x, self.rows, self.ops)
