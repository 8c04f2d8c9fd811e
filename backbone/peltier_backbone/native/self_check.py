"""Compares the native kernels with torch before the first request: products, and whole layers of an encoder and of a
decoder."""

from ctypes import addressof
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.native.example_layer import ExampleLayer, Sizes, drawing
from peltier_backbone.native.library import Library
from peltier_backbone.native.program import ACTIVATIONS, NativeGate, NativeProgram, place_prefix, vector
from peltier_backbone.native.rows import (
    STACK_SITES,
    LayerKeys,
    PlacedOps,
    PlacedRow,
    PlacedRows,
    StackRows,
    Table,
    TableGroup,
)
from peltier_backbone.native.stack import FrozenMap, NativeStack, StackLayer, StackLayout, StackNorm

_LENGTHS, _WIDTH, _HEADS, _INNER, _EPS = [5, 3, 1], 36, 2, 50, 1e-5
_SIZE = _WIDTH // _HEADS
_GROUPS = [(2, 7), (1, 3), (1, 0)]
# Layers of an encoder at odd sizes: with shared heads, and as ModernBERT's with a row that is longer than a block of
# queries.
_ENCODERS = (
    Sizes([5, 3, 1, 4], _WIDTH, _HEADS, _INNER, _GROUPS, sharing=_HEADS, prefix=3),
    Sizes([70, 3, 1, 4], _WIDTH, _HEADS, _INNER, _GROUPS, prefix=3, window=2, turned=True, gated=True),
)
# How far elements of a layer, about 1, may be off. A query rounded to bfloat16 moves a score by at most 2^-9 of
# the sum of its products' sizes, which is below 16, and the weights of keys by twice that. Rounded to 8 bits, a number
# may fall on the next step, 2^-6 of a range of 4, in each of four maps.
_OFF = {torch.float32: 1e-3, torch.bfloat16: 2**-4, torch.int8: 2**-4}


@torch.inference_mode()
def check(library: Library) -> None:
    """Raises a `RuntimeError` that names what is wrong."""
    for dtype in (torch.float32, torch.bfloat16):
        _check_product(library, dtype)
        check_decoder(library, dtype)
    for dtype in _OFF:
        check_encoder(library, dtype)
    _check_int8(library)
    _check_likeliest(library)


def check_encoder(library: Library, dtype: torch.dtype) -> None:
    """Compares layers with weights in `dtype`. Most rows have an adapter with all that adapters do in a layer."""
    for sizes in _ENCODERS:
        layer = ExampleLayer(sizes, dtype)
        found, expected = layer.by_library(library).run(), layer.by_torch()
        _compare(library, f"layers of an encoder in {dtype}", found, expected, off=_OFF[dtype])


def check_decoder(library: Library, dtype: torch.dtype) -> None:
    _compare(library, f"layers of a decoder in {dtype}", *_decode(library, dtype), off=_OFF[dtype])


def _draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _compare(library: Library, what: str, found: Tensor, expected: Tensor, *, off: float = 1e-3) -> None:
    once = 2**-7 if found.dtype == torch.bfloat16 else 1e-5
    if not torch.allclose(found.float(), expected.float(), atol=off, rtol=once):
        raise RuntimeError(f"{library.name} gives wrong {what} on this machine")


def _check_product(library: Library, dtype: torch.dtype) -> None:
    """The last one is divided among all threads, each of which must be able to use the registers of the level."""
    for rows, width in ((13, _WIDTH), (13, _WIDTH - 1), (40, _WIDTH), (110, 800)):
        x, weight, bias = _draw(rows, width).to(dtype), (_draw(50, width) / width**0.5).to(dtype), _draw(50)
        expected = F.gelu(F.linear(x.float(), weight.float(), bias).to(dtype))
        found = library.multiply(x, library.pack(weight), bias, "gelu")
        _compare(library, f"products in {dtype}", found, expected)


def _check_int8(library: Library) -> None:
    """All products are of integers, so each row's values are exact if its range is 0 to 255. Those of the larger size
    are divided among all threads."""
    generator = torch.Generator().manual_seed(0)
    for rows, width in ((110, 800), (13, _WIDTH)):
        x = torch.randint(0, 256, (rows, width), generator=generator).float()
        x[:, 0], x[:, 1] = 0, 255
        values = torch.randint(-64, 65, (70, width), dtype=torch.int8, generator=generator)
        _check_sums(library, x, values)
    shifted, scales, bias = x - 40, _draw(70).abs() / 1000, _draw(70)
    found = library.multiply_int8(shifted, library.pack_int8(values, scales, bias), "relu")
    _compare(library, "products of 8 bits", found, F.relu(F.linear(shifted, values.float()) * scales + bias))


def _check_sums(library: Library, x: Tensor, values: Tensor) -> None:
    found = library.multiply_int8(x, library.pack_int8(values, torch.ones(70)))
    if not torch.equal(found, x @ values.float().t()):
        raise RuntimeError(f"{library.name} gives wrong products of 8 bits on this machine")


def _check_likeliest(library: Library) -> None:
    logits = 3 * _draw(5, 77)
    tokens, log_probs = library.likeliest(logits)
    expected = logits.log_softmax(-1).max(-1)
    if not torch.equal(tokens, expected.indices):
        raise RuntimeError(f"{library.name} gives wrong tokens on this machine")
    _compare(library, "log-probabilities", log_probs, expected.values)


def _decode(library: Library, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A step of three rows: row r has r tokens before it, and sees an encoded row. The first two have a prefix, in both
    attentions, the last one has none."""
    num, draw = len(_LENGTHS), drawing()
    x, memory = draw(num, _WIDTH).to(dtype), draw(sum(_LENGTHS), 2 * _WIDTH, 1)[..., 0].to(dtype)
    store, prefix = draw(2, num, _HEADS, num, _SIZE, 1)[..., 0].to(dtype), draw(2, _HEADS, 3, _SIZE, 1)[..., 0]
    weights = {name: draw(_WIDTH, _WIDTH).to(dtype) for name in ("output", "query", "cross_output")}
    weights |= {"query_key_value": draw(3 * _WIDTH, _WIDTH).to(dtype), "expand": draw(2 * _INNER, _WIDTH).to(dtype)}
    weights["contract"], norms = draw(_WIDTH, _INNER).to(dtype), (draw(4, _WIDTH) + 1).to(dtype)
    gate, shift = 2 * draw(_WIDTH), draw(1)
    expected = _step_by_torch(x, store.clone(), memory, weights, norms, _Prefix(prefix, gate, shift))
    packed = {name: library.pack(weight) for name, weight in weights.items()}
    maps = {name: FrozenMap(None, one.data.data_ptr(), None, one.inner, one.outer) for name, one in packed.items()}
    placed = [StackNorm(norm.data_ptr(), None, 0) for norm in norms]
    layer = StackLayer(own_norm=placed[0], cross_norm=placed[1], feed_norm=placed[2], **maps)
    layout = StackLayout(
        layers=addressof(layer), count=1, hidden=_WIDTH, heads=_HEADS, size=_SIZE, eps=_EPS, scale=1.0,
        activation=ACTIVATIONS["relu"], gated=True, final=placed[3], norms_half=dtype == torch.bfloat16,
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
    native_gate = NativeGate(vector(gate), vector(shift), 1, 0)
    op = place_prefix(STACK_SITES.index("prefix"), prefix[0], prefix[1], native_gate)
    program = NativeProgram([op], len(STACK_SITES), {}, 1, None)
    table = Table([1] * num, [TableGroup(num - 1, program), TableGroup(1)])
    ops = PlacedOps(table, range(len(STACK_SITES)), torch.empty(1, num), prefixed=True)
    return library.run_stack(NativeStack(layout, (layer, packed), library), x, rows, ops), expected


class _Prefix(NamedTuple):
    """A prefix of all rows but the last, [2 (keys, values), heads, prefix, head size], and its gate."""

    pairs: Tensor
    gate: Tensor
    shift: Tensor

    def join(self, x: Tensor, row: int, pairs: Tensor) -> Tensor:
        """The keys and values that a row of x [rows, width] attends to, in float32: the prefix, and `pairs`."""
        if row == len(x) - 1:
            return pairs.float()
        return torch.cat((self.pairs * (x[row].float() @ self.gate + self.shift).sigmoid(), pairs.float()), 2)


def _step_by_torch(
    x: Tensor, store: Tensor, memory: Tensor, weights: dict[str, Tensor], norms: Tensor, prefix: _Prefix
) -> Tensor:  # fmt: skip
    """The states after the layer and its final norm."""
    read = _norm(x, norms[0])
    own, *pairs = F.linear(read, weights["query_key_value"]).chunk(3, -1)
    contexts = []
    for row in range(len(x)):
        for kept, new in zip(store, pairs, strict=True):
            kept[row, :, row] = new[row].view(_HEADS, _SIZE)
        contexts.append(_attend(own[row : row + 1], *prefix.join(read, row, store[:, row, :, : row + 1])))
    x = x + F.linear(torch.cat(contexts), weights["output"])
    read = _norm(x, norms[1])
    asked = F.linear(read, weights["query"])
    contexts = []
    for row, encoded in enumerate(torch.split(memory, _LENGTHS)):
        keys_values = encoded.view(len(encoded), 2, _HEADS, _SIZE).permute(1, 2, 0, 3)
        contexts.append(_attend(asked[row : row + 1], *prefix.join(read, row, keys_values)))
    x = x + F.linear(torch.cat(contexts), weights["cross_output"])
    active, factor = F.linear(_norm(x, norms[2]), weights["expand"]).chunk(2, -1)
    return _norm(x + F.linear(F.relu(active) * factor, weights["contract"]), norms[3])


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x.float(), (_WIDTH,), weight.float(), _EPS).to(x.dtype)


def _attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One token's context; keys and values are [heads, keys, size] in float32."""
    heads = query.float().view(1, _HEADS, _SIZE).transpose(0, 1)
    context = F.scaled_dot_product_attention(heads, keys, values, scale=1.0)
    return context.transpose(0, 1).flatten(1).to(query.dtype)
