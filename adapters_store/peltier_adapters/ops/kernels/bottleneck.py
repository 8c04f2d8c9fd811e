"""y += scale (act(x D + d) U + u) with the maps of each run's own slot, in one launch (docs/methods.md#bottleneck)."""

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
    """down [slots, width, size] and [slots, size], up [slots, size, width] and [slots, width]."""

    down: Tensor
    down_bias: Tensor
    up: Tensor
    up_bias: Tensor


def bottleneck(y: Tensor, x: Tensor, maps: Maps, activation: str, runs: Runs, scale: Tensor | None = None) -> None:
    """Add the bottleneck of x to y, both [tokens, width], in place; x may be y. `scale` is [tokens, 1]."""
    width, size = maps.down.shape[-2:]
    block = block_size(runs.longest, x.dtype)
    _kernel[(triton.cdiv(runs.longest, block), len(runs.slots))](
        y, x, *maps, scale, runs.starts, runs.slots, *strides(y), *strides(x), *chain.from_iterable(map(strides, maps)),
        width=width, size=size, block=block, tile=min(padded(width), WIDEST), tile_size=padded(size),
        activation=activation, scaled=scale is not None, kind=dot_type(x.dtype),
    )  # fmt: skip


@triton.jit
def _kernel(
    y, x, down, down_bias, up, up_bias, scale, starts, slots, y_stride, x_stride,
    down_slot, down_row, down_bias_slot, up_slot, up_row, up_bias_slot,
    width: tl.constexpr, size: tl.constexpr, block: tl.constexpr, tile: tl.constexpr, tile_size: tl.constexpr,
    activation: tl.constexpr, scaled: tl.constexpr, kind: tl.constexpr,
):  # fmt: skip
    first, last, slot = locate(starts, slots, 1, block)
    if (first >= last) | (slot < 0):
        return
    dtype = x.dtype.element_ty
    rows, middle = first + tl.arange(0, block), tl.arange(0, tile_size)
    inner = tl.full((block, tile_size), 0.0, tl.float32)
    for start in range(0, width, tile):
        columns = start + tl.arange(0, tile)
        left = read(x, rows, columns, x_stride, last, width, dtype)
        right = read(down + slot * down_slot, columns, middle, down_row, width, size, dtype)
        inner = multiply(left, right, inner, kind)
    inner = activate(inner + read_line(down_bias + slot * down_bias_slot, middle, size, dtype), activation)
    between = inner.to(dtype)
    for start in range(0, width, tile):
        columns = start + tl.arange(0, tile)
        right = read(up + slot * up_slot, middle, columns, up_row, size, width, dtype)
        outer = multiply(between, right, tl.full((block, tile), 0.0, tl.float32), kind)
        outer += read_line(up_bias + slot * up_bias_slot, columns, width, dtype)
        if scaled:
            outer *= read_scale(scale, rows, last)
        add(y, rows, columns, y_stride, last, width, outer)
