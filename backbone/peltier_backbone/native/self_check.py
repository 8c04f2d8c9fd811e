"""Compares the native kernels with torch before the first request."""

from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.native import inner_kernels
from peltier_backbone.native.library import Library
from peltier_backbone.native.program import (
    NativeGate,
    NativeNormWeights,
    NativeProgram,
    place_op,
    place_prefix,
    step,
    vector,
)
from peltier_backbone.native.rows import PlacedRow, PlacedRows, Table, TableGroup
from peltier_backbone.native.stack_check import check_stack

_LENGTHS, _WIDTH, _CHANGED = [5, 3, 1], 36, 8


@dataclass(frozen=True)
class _Kind:
    eps: float = 1e-5
    centered: bool = True


@torch.inference_mode()
def check(library: Library) -> None:
    """Check products, also of 8 bits, folded and gated steps, biases, norms, attention, also within a window, rotary
    positions, all layers in one call, kept keys and the likeliest token at odd sizes. Of the three rows of adapters the
    first two have one. Raises a `RuntimeError` that names what is wrong."""
    for dtype in (torch.float32, torch.bfloat16):
        _check_product(library, dtype)
        _check_keys(library, dtype)
    _check_int8(library)
    _check_feed_forward(library)
    _check_likeliest(library)
    _check_steps(library)
    _check_bias_and_norm(library)
    _check_attention(library, torch.float32)
    _check_attention(library, torch.float32, rounded=True)
    _check_attention(library, torch.bfloat16)
    _check_window(library)
    _check_turns(library)
    check_stack(library, partial(_compare, library))


def _draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _compare(library: Library, what: str, found: Tensor, expected: Tensor, *, off: float = 1e-3) -> None:
    once = 2**-7 if found.dtype == torch.bfloat16 else 1e-5
    if not torch.allclose(found.float(), expected.float(), atol=off, rtol=once):
        raise RuntimeError(f"{library.name} gives wrong {what} on this machine")


def _table(program: NativeProgram) -> Table:
    return Table(_LENGTHS, [TableGroup(2, program), TableGroup(1)])


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


def _check_feed_forward(library: Library) -> None:
    """As the single products, which are checked against torch, and the activation."""
    x, scales = _draw(13, _WIDTH), torch.full((70,), 1e-3)
    values = torch.randint(-64, 65, (70, _WIDTH + 35), dtype=torch.int8, generator=torch.Generator().manual_seed(1))
    expand = library.pack_int8(values[:, :_WIDTH], scales)
    for gated, inner in ((False, 70), (True, 35)):
        contract = library.pack_int8(values[:_WIDTH, -inner:], scales[:_WIDTH])
        wide, factor = library.multiply_int8(x, expand), torch.ones(())
        if gated:
            wide, factor = wide.chunk(2, -1)
        expected = library.multiply_int8(F.gelu(wide) * factor, contract)
        found = inner_kernels.feed_forward_int8(library, x, expand, contract, "gelu", gated=gated)
        _compare(library, "feed-forward layers of 8 bits", found, expected, off=float(expected.abs().max()) / 50)


def _check_keys(library: Library, dtype: torch.dtype) -> None:
    """Of two tokens in the slots of three."""
    store, tokens = torch.zeros(2, 3, 2, 4, 5, dtype=dtype), _draw(2, 20)
    inner_kernels.keep_keys(library, store, tokens, torch.tensor([3, 2 * 2 * 4 + 1]))
    expected = torch.zeros_like(store)
    expected[:, 0, :, 3], expected[:, 2, :, 1] = tokens.view(2, 2, 2, 5).to(dtype)
    if not torch.equal(store, expected):
        raise RuntimeError(f"{library.name} keeps wrong keys in {dtype} on this machine")


def _check_likeliest(library: Library) -> None:
    logits = 3 * _draw(5, 77)
    tokens, log_probs = library.likeliest(logits)
    expected = logits.log_softmax(-1).max(-1)
    if not torch.equal(tokens, expected.indices):
        raise RuntimeError(f"{library.name} gives wrong tokens on this machine")
    _compare(library, "log-probabilities", log_probs, expected.values)


def _check_steps(library: Library) -> None:
    x, narrow, wide, bias = _draw(sum(_LENGTHS), _WIDTH), _draw(18, 5), _draw(10, _WIDTH), _draw(_WIDTH)
    weight, shift = _draw(_WIDTH) / 6, _draw(1)
    steps, gate = (step(narrow, None, fold=2), step(wide, bias)), NativeGate(vector(weight), vector(shift), 1, 0)
    program = NativeProgram([place_op(0, steps, gate=gate, gain=0.5)], 1, {}, 0, None)
    y, gates = x.clone(), torch.empty(1, len(_LENGTHS))
    library.adapt(y, y, None, _table(program), 0, gates)
    scores = torch.split((x @ weight + shift).sigmoid(), _LENGTHS)
    passed = torch.cat([piece.mean().expand(len(piece), 1) for piece in scores])
    change = 0.5 * passed * ((x.view(-1, 18) @ narrow).view(len(x), 10) @ wide + bias)
    _compare(library, "products", y, x + torch.cat((change[:_CHANGED], torch.zeros(1, _WIDTH))))


def _check_bias_and_norm(library: Library) -> None:
    x, weight, own, bias = _draw(sum(_LENGTHS), _WIDTH), _draw(_WIDTH), _draw(_WIDTH) + 1, _draw(_WIDTH)
    norms = {0: NativeNormWeights(vector(own), vector(bias))}
    table = _table(NativeProgram([place_op(0, width=_WIDTH, added=vector(bias))], 1, norms, 1, None))
    y = x.clone()
    library.adapt(y, y, None, table, 0, torch.empty(1, len(_LENGTHS)))
    _compare(library, "sums", y, torch.cat((x[:_CHANGED] + bias, x[_CHANGED:])))
    normed = F.layer_norm(x, (_WIDTH,), eps=_Kind.eps)
    expected = torch.cat((normed[:_CHANGED] * own + bias, normed[_CHANGED:] * weight))
    _compare(library, "norms", library.norm(x, None, weight, None, _Kind(), table), expected)


def _check_attention(library: Library, dtype: torch.dtype, *, rounded: bool = False) -> None:
    qkv, expected = _draw(sum(_LENGTHS), 3 * _WIDTH).to(dtype), list[Tensor]()
    # Rounded queries move a logit by 2^-9 of a sum of sizes, which is below 3, and a weight by about twice that.
    off = 2**-5 if rounded or dtype == torch.bfloat16 else 1e-3
    prefix, gates = _draw(2, 3, 2, _WIDTH // 2).transpose(1, 2), torch.tensor([0.5, 0.25, 1.0])  # [2, heads, 3, size]
    gate = NativeGate(vector(gates), vector(gates), 1, 0)
    program = NativeProgram([place_prefix(0, prefix[0], prefix[1], gate)], 1, {}, 0, None)
    for row, piece in enumerate(torch.split(qkv.float(), _LENGTHS)):
        query, key, value = piece.view(len(piece), 3, 2, -1).permute(1, 2, 0, 3)
        if row < 2:
            key, value = torch.cat((prefix[0] * gates[row], key), 1), torch.cat((prefix[1] * gates[row], value), 1)
        expected.append(F.scaled_dot_product_attention(query, key, value).transpose(0, 1).flatten(1))
    query, key, value = qkv.chunk(3, -1)
    size, prefixes = _WIDTH // 2, inner_kernels.PlacedPrefixes(_table(program), gates=gates)
    rows = PlacedRows.packed(_LENGTHS, _LENGTHS)
    found = inner_kernels.attend(library, query, key, value, size, rows, 2, prefixes, scale=size**-0.5, rounded=rounded)
    _compare(library, "attention", found, torch.cat(expected), off=off)
    starts = accumulate(_LENGTHS, initial=0)
    first = [PlacedRow(start, 1, start, keys) for start, keys in zip(starts, _LENGTHS, strict=False)]
    rows = PlacedRows.place(first)
    single = inner_kernels.attend(library, query, key, value, size, rows, 2, prefixes, scale=size**-0.5, once=True)
    for place, exact in zip(first, expected, strict=True):
        _compare(library, "attention of one query", single[place.first], exact[0], off=off)


def _check_window(library: Library) -> None:
    """A row that is longer than a block of queries."""
    length, window, size = 70, 2, _WIDTH // 2
    qkv, places = _draw(length, 3 * _WIDTH), torch.arange(length)
    query, key, value = qkv.view(length, 3, 2, -1).permute(1, 2, 0, 3)
    near = (places - places[:, None]).abs() <= window
    exact = F.scaled_dot_product_attention(query, key, value, near).transpose(0, 1).flatten(1)
    query, key, value = qkv.chunk(3, -1)
    rows = PlacedRows.packed([length], [length])
    found = inner_kernels.attend(library, query, key, value, size, rows, 2, scale=size**-0.5, window=window)
    _compare(library, "attention within a window", found, exact)


def _check_turns(library: Library) -> None:
    """A pair of elements is a complex number; what lies behind the heads stays."""
    pairs, angles, positions = _WIDTH // 4, _draw(9, _WIDTH // 4), torch.tensor([8, 0, 3, 3, 1])
    x = _draw(len(positions), 3 * _WIDTH)
    numbers = torch.complex(*x[:, :_WIDTH].reshape(-1, 2, 2, pairs).unbind(2))
    turned = torch.view_as_real(numbers * torch.polar(torch.ones_like(angles), angles)[positions, None])
    found = x.clone()
    inner_kernels.rotate(library, found, torch.cat((angles.cos(), angles.sin()), 1), positions, 2)
    exact = torch.cat((turned.movedim(-1, 2).flatten(1), x[:, _WIDTH:]), 1)
    _compare(library, "rotary positions", found, exact)
