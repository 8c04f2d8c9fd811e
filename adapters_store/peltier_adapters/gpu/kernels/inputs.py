"""What an op reads, x or x + residual or a norm of the sum, and its gate."""

import triton
import triton.language as tl
from peltier_backbone.native import program as layout

from peltier_adapters.gpu.kernels.activation import sigmoid
from peltier_adapters.gpu.kernels.rows import (
    BEFORE,
    CENTERED,
    EPS,
    GATE_BIAS,
    GATE_COLUMN,
    GATE_OUTPUTS,
    GATE_WEIGHT,
    NORM_BIAS,
    NORM_WEIGHT,
    READS,
    find,
    read_float,
)
from peltier_adapters.gpu.kernels.tile import read, read_line

_READS_X, _READS_NORM = tl.constexpr(layout.READS["x"]), tl.constexpr(layout.READS["norm"])


@triton.jit
def read_sum(x, residual, rows, columns, x_stride, residual_stride, last, width, reads, dtype: tl.constexpr):
    """x, or x + residual, rounded to `dtype`; zeros at or beyond the ends."""
    value = read(x, rows, columns, x_stride, last, width, dtype)
    more = read(residual, rows, columns, residual_stride, tl.where(reads != _READS_X, last, 0), width, dtype)
    return (value.to(tl.float32) + more.to(tl.float32)).to(dtype)


@triton.jit
def find_moments(
    op, x, residual, rows, x_stride, residual_stride, last, reads, block: tl.constexpr, tile: tl.constexpr,
    unit: tl.constexpr, dtype: tl.constexpr,
):  # fmt: skip
    """The mean and the reciprocal deviation of each token's sum, as columns, if the op reads a norm of it."""
    width = tl.multiple_of(tl.load(op + BEFORE), unit)
    live, count = tl.where(reads == _READS_NORM, width, 0), tl.maximum(width, 1).to(tl.float32)
    total = tl.full((block,), 0.0, tl.float32)
    for start in range(0, tl.where(tl.load(op + CENTERED) != 0, live, 0), tile):
        columns = start + tl.arange(0, tile)
        value = read_sum(x, residual, rows, columns, x_stride, residual_stride, last, width, reads, dtype)
        total += tl.sum(value.to(tl.float32), 1)
    mean = (total / count)[:, None]
    squares = tl.full((block,), 0.0, tl.float32)
    for start in range(0, live, tile):
        columns = start + tl.arange(0, tile)
        value = read_sum(x, residual, rows, columns, x_stride, residual_stride, last, width, reads, dtype)
        away = tl.where(columns[None, :] < width, value.to(tl.float32) - mean, 0.0)
        squares += tl.sum(away * away, 1)
    variance = tl.where(reads == _READS_NORM, squares / count + read_float(op + EPS), 1.0)
    return mean, tl.rsqrt(variance)[:, None]


@triton.jit
def read_input(
    op, base, x, residual, mean, scale, rows, first, columns, x_stride, residual_stride, last, width, reads,
    dtype: tl.constexpr,
):  # fmt: skip
    """Columns below `width`, counted from column `first`, of what the op reads, rounded to `dtype`."""
    value = read_sum(x + first, residual + first, rows, columns, x_stride, residual_stride, last, width, reads, dtype)
    weight, weighed = find(op + NORM_WEIGHT, base, dtype)
    bias, biased = find(op + NORM_BIAS, base, dtype)
    own = read_line(weight + first, columns, tl.where(weighed, width, 0), dtype)
    normed = (value.to(tl.float32) - mean) * scale * own
    normed += read_line(bias + first, columns, tl.where(biased, width, 0), dtype)
    inside = (rows[:, None] < last) & (columns[None, :] < width)
    return tl.where(reads == _READS_NORM, tl.where(inside, normed, 0.0).to(dtype), value)


@triton.jit
def find_gate(
    op, base, x, residual, begin, last, x_stride, residual_stride, block: tl.constexpr, tile: tl.constexpr,
    unit: tl.constexpr, dtype: tl.constexpr,
):  # fmt: skip
    """The op's gate for the row `begin..last`; 1 without a gate."""
    outputs, reads = tl.load(op + GATE_OUTPUTS), tl.load(op + READS)
    width = tl.multiple_of(tl.load(op + BEFORE), unit)
    weight, _ = find(op + GATE_WEIGHT, base, dtype)
    bias, _ = find(op + GATE_BIAS, base, dtype)
    first_bias = tl.load(bias, mask=outputs > 0, other=0.0).to(tl.float32)
    second_bias = tl.load(bias + 1, mask=outputs > 1, other=0.0).to(tl.float32)
    one, first_share, second_share = 0.0, 0.0, 0.0
    for start in range(tl.where(outputs > 0, begin, last), last, block):
        rows = start + tl.arange(0, block)
        mean, scale = find_moments(
            op, x, residual, rows, x_stride, residual_stride, last, reads, block, tile, unit, dtype
        )
        first, second = tl.full((block,), 0.0, tl.float32), tl.full((block,), 0.0, tl.float32)
        for at in range(0, width, tile):
            columns = at + tl.arange(0, tile)
            value = read_input(
                op,
                base,
                x,
                residual,
                mean,
                scale,
                rows,
                0,
                columns,
                x_stride,
                residual_stride,
                last,
                width,
                reads,
                dtype,
            ).to(tl.float32)
            first += tl.sum(value * read_line(weight, columns * outputs, width * outputs, dtype), 1)
            second += tl.sum(value * read_line(weight + 1, columns * 2, tl.where(outputs > 1, width * 2, 0), dtype), 1)
        first = (first + first_bias).to(dtype).to(tl.float32)
        second = (second + second_bias).to(dtype).to(tl.float32)
        inside = rows < last
        one += tl.sum(tl.where(inside, sigmoid(first), 0.0))
        first_share += tl.sum(tl.where(inside, tl.maximum(first, 0.0), 0.0))
        second_share += tl.sum(tl.where(inside, tl.maximum(second, 0.0), 0.0))
    count = (last - begin).to(tl.float32)
    sign = tl.where(tl.load(op + GATE_COLUMN) == 0, 1.0, -1.0)
    share = sigmoid(sign * (first_share - second_share) / count)  # a softmax of two
    return tl.where(outputs == 0, 1.0, tl.where(outputs == 1, one / count, share))
