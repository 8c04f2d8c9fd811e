"""A layer of BERT with adapters, by the native kernels and by torch. The self-check compares both results at odd sizes,
and the trial at start compares both times."""

import math
from collections.abc import Callable, Sequence
from ctypes import addressof
from itertools import accumulate
from typing import NamedTuple, Self

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
# A bottleneck that is folded sees a token as so many rows; one that is scaled adds so much of its result.
_FOLD, _GAIN = 2, 0.5


class Sizes(NamedTuple):
    """The sizes of a layer and a batch. Each of `groups` is a number of rows and the width of their bottleneck, 0 for
    rows without an adapter. `sharing` neighbours among the heads share their keys and values. Adapters with a `prefix`
    of so many tokens, which is gated, also add biases to queries, keys and values, fold their bottlenecks, and gate and
    scale the second one. With a `window` tokens attend to the prefix and to the tokens at most so far away; `turned`
    queries and keys have rotary positions. A `gated` feed-forward layer multiplies what it activates."""

    lengths: Sequence[int]
    hidden: int
    heads: int
    inner: int
    groups: Sequence[tuple[int, int]]
    sharing: int = 1
    prefix: int = 0
    window: int = 0
    turned: bool = False
    gated: bool = False

    @property
    def fold(self) -> int:
        return _FOLD if self.prefix else 1


def drawing() -> Callable[..., Tensor]:
    """Gives random numbers of a shape, others at each call, of which a product has about the size of its input."""
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(shape, generator=generator) / math.sqrt(shape[-1])


class _Map(NamedTuple):
    """A frozen map; in int8 with one scale for each output."""

    weight: Tensor  # [out, in]
    bias: Tensor  # [out]
    scales: Tensor  # [out]

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> Self:
        if dtype != torch.int8:
            return cls(weight.to(dtype), bias, torch.ones(len(weight)))
        scales = weight.abs().amax(1) / 63  # 255 times the sum of two values fits 16 bits
        return cls((weight / scales[:, None]).round().to(dtype), bias, scales)

    def place(self, library: Library) -> tuple[FrozenMap, object]:
        """The map as the kernels read it, and what owns its weight."""
        outer, inner = self.weight.shape
        if self.weight.dtype == torch.int8:
            quantized = library.pack_int8(self.weight, self.scales, self.bias)
            return FrozenMap(quantized.address, None, None, inner, outer), quantized
        packed = library.pack(self.weight)
        return FrozenMap(None, packed.data.data_ptr(), self.bias.data_ptr(), inner, outer), packed

    def by_torch(self, x: Tensor) -> Tensor:
        if self.weight.dtype != torch.int8:
            return F.linear(x, self.weight, self.bias.to(x.dtype))
        least = x.amin(1).clamp(max=0)
        steps = (x.amax(1).clamp(min=0) - least) / 255
        zeros = (-least / steps).round().int()
        rounded = torch.fake_quantize_per_channel_affine(x, steps, zeros, 0, 0, 255)
        return F.linear(rounded, self.weight * self.scales[:, None], self.bias)


class _Adapter(NamedTuple):
    """A bottleneck, the same after attention and after the feed-forward layer, norms of which the first has a bias,
    biases of queries, keys and values, a prefix, and gates."""

    down: Tensor  # [hidden / fold, bottleneck]
    up: Tensor  # [fold * bottleneck, hidden]
    bias: Tensor
    norm: Tensor
    norm_bias: Tensor
    added: Tensor  # [3 * hidden]
    prefix: Tensor  # [2 (keys, values), heads, prefix, head size]
    gate: Tensor  # [hidden]
    shift: Tensor  # [1]

    @classmethod
    def draw(cls, draw: Callable[..., Tensor], sizes: Sizes, width: int) -> Self:
        hidden, size, fold = sizes.hidden, sizes.hidden // sizes.heads, sizes.fold
        return cls(
            down=draw(hidden // fold, width), up=draw(fold * width, hidden), bias=draw(hidden), norm=draw(hidden) + 1,
            norm_bias=draw(hidden), added=draw(3 * hidden, 1)[:, 0] / 2, gate=2 * draw(hidden), shift=draw(1),
            prefix=2 * draw(2, sizes.heads, sizes.prefix, size, 1)[..., 0],
        )  # fmt: skip

    def changes(self, x: Tensor) -> Tensor:
        """What the bottleneck gives for x [tokens, hidden]."""
        narrow = F.relu(x.view(-1, len(self.down)) @ self.down).view(len(x), -1)
        return narrow @ self.up + self.bias

    def gates(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """One number for each row of so many tokens, [tokens, 1]."""
        scores = (x.float() @ self.gate + self.shift).sigmoid()
        return torch.cat([piece.mean().expand(len(piece), 1) for piece in torch.split(scores, list(lengths))])

    def program(self, sizes: Sizes) -> NativeProgram:
        narrow = step(self.down, None, fold=sizes.fold, activation="relu")
        steps, gate = (narrow, step(self.up, self.bias)), NativeGate(vector(self.gate), vector(self.shift), 1, 0)
        attention, ffn, prefix, projected = (
            STACK_SITES.index(name) for name in ("attention", "ffn", "prefix", "query_key_value")
        )
        if sizes.prefix:
            ops = [
                place_op(projected, added=vector(self.added), width=len(self.added)),
                place_prefix(prefix, self.prefix[0], self.prefix[1], gate),
                place_op(attention, steps),
                place_op(ffn, steps, gate=gate, gain=_GAIN),
            ]
        else:
            ops = [place_op(attention, steps), place_op(ffn, steps)]
        norms = (NativeNormWeights(vector(self.norm), vector(bias)) for bias in (self.norm_bias, None))
        return NativeProgram(ops, len(STACK_SITES), dict(enumerate(norms)), 2, self)


class ExampleLayer:
    """Random weights of one layer and of the adapters of a batch, and the batch's states, in one dtype: states are
    float32 if weights are int8. Queries and keys are so large that a token attends mostly to one or two keys."""

    def __init__(self, sizes: Sizes, dtype: torch.dtype = torch.float32) -> None:
        self._sizes, hidden, inner, draw = sizes, sizes.hidden, sizes.inner, drawing()
        self._quantized = dtype == torch.int8
        own = torch.float32 if self._quantized else dtype
        self._starts = list(accumulate(sizes.lengths, initial=0))
        self._x = draw(self._starts[-1], hidden, 1)[..., 0].to(own)
        shared = hidden // sizes.sharing
        shapes = (
            (hidden + 2 * shared, hidden), (hidden, hidden), ((1 + sizes.gated) * inner, hidden), (hidden, inner),
        )  # fmt: skip
        weights = [draw(*shape) for shape in shapes]
        weights[0][:-shared] *= math.sqrt(2)
        self._maps = [_Map.of(weight, draw(len(weight)), dtype) for weight in weights]
        self._norm = (draw(hidden) + 1).to(own), draw(hidden).to(own)
        self._adapters = [_Adapter.draw(draw, sizes, width) if width else None for _, width in sizes.groups]
        self._angles = draw(max(sizes.lengths), hidden // sizes.heads // 2, 1)[..., 0]
        self._turns = torch.cat((self._angles.cos(), self._angles.sin()), 1)
        self._scale = (hidden // sizes.heads) ** -0.5

    def by_library(self, library: Library) -> "NativeExample":
        """The layer as `library` computes it."""
        lengths = self._sizes.lengths
        positions = torch.cat([torch.arange(length) for length in lengths])
        rows = StackRows(PlacedRows.packed(lengths, lengths), positions=positions)
        return NativeExample(library, self._x, self._lay_out(library), rows, self._place_ops())

    def _lay_out(self, library: Library) -> NativeStack:
        maps, packed = zip(*(one.place(library) for one in self._maps), strict=True)
        norms = [StackNorm(*(one.data_ptr() for one in self._norm), index) for index in range(2)]
        names = ("query_key_value", "output", "expand", "contract")
        layer = StackLayer(
            own_norm=norms[0], feed_norm=norms[1], window=self._sizes.window,
            turns=self._turns.data_ptr() if self._sizes.turned else None, **dict(zip(names, maps, strict=True)),
        )  # fmt: skip
        hidden, heads, half = self._sizes.hidden, self._sizes.heads, self._x.dtype == torch.bfloat16
        layout = StackLayout(
            layers=addressof(layer), count=1, hidden=hidden, heads=heads, size=hidden // heads, eps=_EPS, post=True,
            norms_half=half, centered=True, activation=ACTIVATIONS["gelu"], gated=self._sizes.gated,
            rounded=self._quantized, scale=self._scale,
        )  # fmt: skip
        return NativeStack(layout, (layer, packed, self), library)

    def _place_ops(self) -> PlacedOps:
        groups = [
            TableGroup(rows, None if adapter is None else adapter.program(self._sizes))
            for (rows, _), adapter in zip(self._sizes.groups, self._adapters, strict=True)
        ]
        table, places = Table(self._sizes.lengths, groups), range(len(STACK_SITES))
        return PlacedOps(table, places, torch.empty(table.max_ops, table.num_rows), prefixed=self._sizes.prefix > 0)

    def by_torch(self) -> Tensor:
        """The states after the layer, [tokens, hidden], as torch computes them."""
        middle = self._adapt_and_norm(self._maps[1].by_torch(self._attend()), self._x, 0)
        return self._adapt_and_norm(self._feed_forward(middle), middle, 1)

    def _feed_forward(self, x: Tensor) -> Tensor:
        wide = self._maps[2].by_torch(x)
        if not self._sizes.gated:
            return self._maps[3].by_torch(F.gelu(wide))
        active, factor = wide.chunk(2, -1)
        return self._maps[3].by_torch(F.gelu(active) * factor)

    def _attend(self) -> Tensor:
        """Row by row, in float32, which is faster on a CPU than bfloat16."""
        sizes, num = self._sizes, self._sizes.heads
        qkv = self._maps[0].by_torch(self._x)
        heads = qkv.float().view(len(qkv), num + 2 * num // sizes.sharing, -1).transpose(0, 1)
        adapters = [one for (rows, _), one in zip(sizes.groups, self._adapters, strict=True) for _ in range(rows)]
        contexts = []
        lengths = list(sizes.lengths)
        pieces = zip(torch.split(heads, lengths, 1), torch.split(self._x, lengths), adapters, strict=True)
        for piece, x, adapter in pieces:
            query, key, value = self._own_heads(piece, adapter)
            if sizes.turned:
                query, key = self._turn(query), self._turn(key)
            if sizes.prefix and adapter is not None:
                prefix = adapter.prefix * adapter.gates(x, [len(x)])[0]
                key, value = (torch.cat(pair, 1) for pair in zip(prefix, (key, value), strict=True))
            seen = self._seen(query.shape[1], key.shape[1]) if sizes.window else None
            contexts.append(F.scaled_dot_product_attention(query, key, value, seen, scale=self._scale))
        return torch.cat(contexts, 1).transpose(0, 1).flatten(1).to(qkv.dtype)

    def _own_heads(self, piece: Tensor, adapter: _Adapter | None) -> tuple[Tensor, ...]:
        """The queries, keys and values of each head of a row, [heads, tokens, size], with the biases of its adapter."""
        num, sharing = self._sizes.heads, self._sizes.sharing
        found = torch.split(piece, [num, num // sharing, num // sharing])
        if sharing > 1:
            found = found[0], *(one.repeat_interleave(sharing, 0) for one in found[1:])
        if not self._sizes.prefix or adapter is None:
            return found
        added = adapter.added.view(3, num, 1, -1)
        return tuple((one + more).to(self._x.dtype).float() for one, more in zip(found, added, strict=True))

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

    def _adapt_and_norm(self, y: Tensor, residual: Tensor, index: int) -> Tensor:
        """Group by group; a group with an adapter has its own norm weight, and a bias in the first norm."""
        states, row = [], 0
        for (rows, _), adapter in zip(self._sizes.groups, self._adapters, strict=True):
            own = slice(self._starts[row], self._starts[row + rows])
            summed, (weight, bias) = y[own], self._norm
            if adapter is not None:
                change = adapter.changes(summed.float())
                if index and self._sizes.prefix:
                    change *= _GAIN * adapter.gates(summed, self._sizes.lengths[row : row + rows])
                summed = (summed + change).to(y.dtype)
                weight, bias = adapter.norm.to(y.dtype), bias if index else adapter.norm_bias.to(y.dtype)
            row += rows
            states.append(F.layer_norm(summed + residual[own], (y.shape[1],), weight, bias, _EPS))
        return torch.cat(states)


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
