"""A Compacter bottleneck in factored form, in one launch, without building its maps (docs/methods.md#eq-factored).

W = sum_i A_i (x) (s_i t_i), folded as in `parts/compacter.py`: the rule is part of the smaller factor. Towards the
bottleneck, h = sum_a (x_a S) R_a with x_a the n blocks of x; away from it, block c of the output is ((h L)_c + e_c) T,
where the last n rows of T are the n blocks of the bias and e_c selects block c.
"""

from itertools import chain
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from peltier_adapters.ops.kernels.activation import activate
from peltier_adapters.ops.kernels.runs import Runs, block_size, locate
from peltier_adapters.ops.kernels.tile import (
    WIDEST,
    add,
    dot_type,
    multiply,
    padded,
    read,
    read_line,
    read_scale,
    strides,
)


class Maps(NamedTuple):
    """The tensors of `ContractingLphm` and `ExpandingLphm`: first [slots, width / n, n r], rule_down [slots, n n r,
    size] with its bias [slots, size]; rule_up [slots, size, n (n r + n)] with its constant [slots, n (n r + n)], and
    second [slots, n r + n, width / n]."""

    first: Tensor
    rule_down: Tensor
    bias: Tensor
    rule_up: Tensor
    ones: Tensor
    second: Tensor


def compacter(y: Tensor, x: Tensor, maps: Maps, activation: str, runs: Runs, scale: Tensor | None = None) -> None:
    """Add the bottleneck of x to y, both [tokens, width], in place; x may be y. `scale` is [tokens, 1]."""
    part, rank_down = maps.first.shape[-2:]
    rank_up, size = maps.second.shape[-2], maps.rule_down.shape[-1]
    block = block_size(runs.longest, x.dtype)
    _kernel[(triton.cdiv(runs.longest, block), len(runs.slots))](
        y, x, *maps, scale, runs.starts, runs.slots, *strides(y), *strides(x), *chain.from_iterable(map(strides, maps)),
        blocks=x.shape[-1] // part, part=part, rank_down=rank_down, rank_up=rank_up, size=size, block=block,
        tile=min(padded(part), WIDEST), tile_down=padded(rank_down), tile_up=padded(rank_up), tile_size=padded(size),
        activation=activation, scaled=scale is not None, kind=dot_type(x.dtype),
    )  # fmt: skip


@triton.jit
def _kernel(
    y, x, first, rule_down, bias, rule_up, ones, second, scale, starts, slots, y_stride, x_stride,
    first_slot, first_row, rule_down_slot, rule_down_row, bias_slot,
    rule_up_slot, rule_up_row, ones_slot, second_slot, second_row,
    blocks: tl.constexpr, part: tl.constexpr, rank_down: tl.constexpr, rank_up: tl.constexpr, size: tl.constexpr,
    block: tl.constexpr, tile: tl.constexpr, tile_down: tl.constexpr, tile_up: tl.constexpr, tile_size: tl.constexpr,
    activation: tl.constexpr, scaled: tl.constexpr, kind: tl.constexpr,
):  # fmt: skip
    start, last, slot = locate(starts, slots, 1, block)
    if (start >= last) | (slot < 0):
        return
    dtype = x.dtype.element_ty
    rows, middle = start + tl.arange(0, block), tl.arange(0, tile_size)
    inner = tl.full((block, tile_size), 0.0, tl.float32)
    down = tl.arange(0, tile_down)
    for number in range(blocks):
        thin = tl.full((block, tile_down), 0.0, tl.float32)
        for begin in range(0, part, tile):
            columns = begin + tl.arange(0, tile)
            left = read(x + number * part, rows, columns, x_stride, last, part, dtype)
            right = read(first + slot * first_slot, columns, down, first_row, part, rank_down, dtype)
            thin = multiply(left, right, thin, kind)
        own = rule_down + slot * rule_down_slot + number * rank_down * rule_down_row
        rule = read(own, down, middle, rule_down_row, rank_down, size, dtype)
        inner = multiply(thin.to(dtype), rule, inner, kind)
    inner = activate(inner + read_line(bias + slot * bias_slot, middle, size, dtype), activation)
    between = inner.to(dtype)
    up = tl.arange(0, tile_up)
    for number in range(blocks):
        own = rule_up + slot * rule_up_slot + number * rank_up
        rule = read(own, middle, up, rule_up_row, size, rank_up, dtype)
        thin = multiply(between, rule, tl.full((block, tile_up), 0.0, tl.float32), kind)
        thin += read_line(ones + slot * ones_slot + number * rank_up, up, rank_up, dtype)
        factor = thin.to(dtype)
        for begin in range(0, part, tile):
            columns = begin + tl.arange(0, tile)
            right = read(second + slot * second_slot, up, columns, second_row, rank_up, part, dtype)
            outer = multiply(factor, right, tl.full((block, tile), 0.0, tl.float32), kind)
            if scaled:
                outer *= read_scale(scale, rows, last)
            add(y + number * part, rows, columns, y_stride, last, part, outer)
