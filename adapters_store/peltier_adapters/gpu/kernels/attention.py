"""Attention of rows of any lengths and to the prefixes of their adapters, in one launch, without pads."""

import torch
import triton
import triton.language as tl
from peltier_backbone.native.rows import ROW_WORDS
from torch import Tensor

from peltier_adapters.gpu.kernels.rows import (
    GATE,
    HEAD_STRIDE,
    KEY_STRIDE,
    KEYS,
    LENGTH,
    NUM_PREFIX_WORDS,
    PREFIXES,
    VALUES,
    Rows,
    block_size,
    find,
    find_program,
    strides,
)
from peltier_adapters.gpu.kernels.tile import dot_type, multiply, read, tile_size

# The words of a placed row (`placed_row` in kernels.h): its first query and their number, its first key and
# their number, and the address of a bias in float32 with the elements between its heads and between its queries.
NUM_ROW_WORDS = len(ROW_WORDS)
_ROW_WORDS = tl.constexpr(NUM_ROW_WORDS)


class Attention:
    """The attention of the rows of a batch, with the prefixes that their programs have in attention `number`, times the
    `gates` [ops, rows] that their ops computed."""

    def __init__(self, rows: Rows, number: int, gates: Tensor) -> None:
        self._rows, self._number, self._gates = rows, number, gates

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, head_stride: int, placed: Tensor, longest: int, heads: int, *,
        scale: float = 1.0,
    ) -> Tensor:  # fmt: skip
        """The context of `query` [queries, size], with the layout `placed` [rows, 7] of rows of at most `longest`
        queries. There are `head_stride` elements between the heads of a key. A row attends first to its prefix, without
        a bias."""
        size = query.shape[1] // heads
        context = torch.empty_like(query, memory_format=torch.contiguous_format)
        block, tile = block_size(longest, query.dtype), int(max(triton.next_power_of_2(size), 16))
        _kernel[(triton.cdiv(longest, block), len(placed) * heads)](
            context, query, key, value, placed, self._rows.bases, self._rows.programs, self._gates, self._number,
            *strides(context, query, key, value, self._gates), head_stride, scale, heads=heads, size=size, block=block,
            keys=tile_size(query.dtype), tile=tile, kind=dot_type(query.dtype), num_stages=2,
        )  # fmt: skip
        return context


@triton.jit(
    do_not_specialize=["number", "gates_stride"], do_not_specialize_on_alignment=["placed", "bases", "programs"]
)
def _kernel(
    context, query, key, value, placed, bases, programs, gates, number, context_stride, query_stride, key_stride,
    value_stride, gates_stride, head_stride, scale, heads: tl.constexpr, size: tl.constexpr, block: tl.constexpr,
    keys: tl.constexpr, tile: tl.constexpr, kind: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    words = placed + row * _ROW_WORDS
    first_query, num_queries = tl.load(words), tl.load(words + 1)
    first = tl.program_id(0) * block
    if first >= num_queries:
        return
    queries, columns = first + tl.arange(0, block), tl.arange(0, tile)
    dtype = query.dtype.element_ty
    places = first_query + queries
    end = first_query + num_queries
    q = read(query + head * size, places, columns, query_stride, end, size, dtype)
    top = tl.full((block,), -1.0e38, tl.float32)
    total = tl.full((block,), 0.0, tl.float32)
    sums = tl.full((block, tile), 0.0, tl.float32)
    program, adapted = find_program(programs, row)
    if adapted:
        prefixes = tl.load(program + PREFIXES)
        if prefixes > 0:
            own, base = program + prefixes + number * NUM_PREFIX_WORDS, tl.load(bases + row)
            own_keys, _ = find(own + KEYS, base, dtype)
            own_values, _ = find(own + VALUES, base, dtype)
            length, slot = tl.load(own + LENGTH), tl.load(own + GATE)
            own_stride, own_head = tl.load(own + KEY_STRIDE), head * tl.load(own + HEAD_STRIDE)
            gate = tl.load(gates + slot * gates_stride + row, mask=slot >= 0, other=1.0).to(dtype).to(tl.float32)
            for start in range(0, length, keys):
                numbers = start + tl.arange(0, keys)
                k = read(own_keys + own_head, numbers, columns, own_stride, length, size, dtype)
                v = read(own_values + own_head, numbers, columns, own_stride, length, size, dtype)
                logits = (
                    multiply(
                        q, tl.trans((k.to(tl.float32) * gate).to(dtype)), tl.full((block, keys), 0.0, tl.float32), kind
                    )
                    * scale
                )
                top, total, sums = _take(
                    logits, (v.to(tl.float32) * gate).to(dtype), numbers < length, top, total, sums, kind
                )
    first_key, num_keys = tl.load(words + 2), tl.load(words + 3)
    bias, bias_head, bias_query = tl.load(words + 4), tl.load(words + 5), tl.load(words + 6)
    key_end = first_key + num_keys
    for start in range(0, num_keys, keys):
        numbers = start + tl.arange(0, keys)
        k = read(key + head * head_stride, first_key + numbers, columns, key_stride, key_end, size, dtype)
        v = read(value + head * head_stride, first_key + numbers, columns, value_stride, key_end, size, dtype)
        logits = multiply(q, tl.trans(k), tl.full((block, keys), 0.0, tl.float32), kind) * scale
        seen = numbers < num_keys
        if bias != 0:
            own_bias = bias.to(tl.pointer_type(tl.float32)) + head * bias_head
            inside = (queries[:, None] < num_queries) & seen[None, :]
            logits += tl.load(own_bias + queries[:, None] * bias_query + numbers[None, :], mask=inside, other=0.0)
        top, total, sums = _take(logits, v, seen, top, total, sums, kind)
    found = (sums / total[:, None]).to(dtype)
    to = context + head * size + places[:, None] * context_stride + columns[None, :]
    tl.store(to, found, mask=(places[:, None] < end) & (columns[None, :] < size))


@triton.jit
def _take(logits, value, seen, top, total, sums, kind: tl.constexpr):
    """The running softmax after more keys: its largest logit, the sum of weights, and the weighted sum of values."""
    logits = tl.where(seen[None, :], logits, float("-inf"))
    higher = tl.maximum(top, tl.max(logits, 1))
    weights = tl.exp(logits - higher[:, None])
    shrink = tl.exp(top - higher)
    sums = multiply(weights.to(value.dtype), value, sums * shrink[:, None], kind)
    return higher, total * shrink + tl.sum(weights, 1), sums
