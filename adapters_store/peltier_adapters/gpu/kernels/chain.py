"""One launch for a site: y += gain gate steps(x) for all rows of a batch, each by the op of its adapter's program.

All ops have one form (docs/methods/compacter.md#eq-factored), with n blocks x_a of the input and y_c of the output:

    h = act(sum_a (x_a S) R_a + b),  y_c += ((h L)_c + e_c) T + u

A Compacter has all of it. A low-rank bottleneck has n = 1, a dense bottleneck or a LoRA has also the identity as R and
L, and a bias has only u. A scale is none of this: it multiplies columns of y.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from peltier_adapters.gpu.kernels.activation import activate
from peltier_adapters.gpu.kernels.inputs import find_gate, find_moments, read_input
from peltier_adapters.gpu.kernels.rows import (
    ACTIVATION,
    BIAS,
    COLUMN,
    FIRST_STEP,
    FOLD,
    GAIN,
    INNER,
    NUM_OP_WORDS,
    NUM_STEP_WORDS,
    OPS,
    OUTER,
    PLACES,
    READS,
    SCALED,
    STRIDE,
    WEIGHT,
    WIDE,
    Rows,
    block_size,
    find,
    find_program,
    locate,
    read_float,
    strides,
)
from peltier_adapters.gpu.kernels.tile import MIDDLE, add, copy, dot_type, multiply, read, read_line, tile_size


class Launch(NamedTuple):
    """How a place is computed. The ops of a row run `lanes` at a time, which change different columns. The blocks of
    inputs and outputs begin at multiples of `unit` columns, and rows of weights at multiples of `grain` elements."""

    lanes: int
    unit: int
    grain: int


def chain(
    out: Tensor, y: Tensor, x: Tensor, residual: Tensor | None, gates: Tensor, rows: Rows, place: int, launch: Launch
) -> None:
    """Write to `out` y plus what the ops at `place` add; `out` may be y unless x is. The gate of op k goes to
    `gates[k]`, [ops, rows] in float32."""
    block = block_size(rows.longest, x.dtype)
    residual = x if residual is None else residual  # ops that read it are given one
    _kernel[(triton.cdiv(rows.longest, block), len(rows), launch.lanes)](
        out, y, x, residual, gates, rows.starts, rows.bases, rows.programs, place, *strides(out, y, x, residual),
        y.shape[1], gates.stride(0), int(out is not y), block=block, tile=tile_size(x.dtype), middle=MIDDLE,
        unit=launch.unit, grain=launch.grain, kind=dot_type(x.dtype), num_warps=8,
        num_stages=1 if x.dtype == torch.float32 else 2,
    )  # fmt: skip


@triton.jit(
    do_not_specialize=["place", "gates_stride", "copies"],
    do_not_specialize_on_alignment=["starts", "bases", "programs"],
)
def _kernel(
    out, y, x, residual, gates, starts, bases, programs, place, out_stride, y_stride, x_stride, residual_stride,
    width, gates_stride, copies, block: tl.constexpr, tile: tl.constexpr, middle: tl.constexpr,
    unit: tl.constexpr, grain: tl.constexpr, kind: tl.constexpr,
):  # fmt: skip
    first, begin, last = locate(starts, block)
    if first >= last:
        return
    row, rows = tl.program_id(1), first + tl.arange(0, block)
    for at in range(0, tl.where(copies != 0, width, 0), tile):
        copy(out, y, rows, at + tl.arange(0, tile), out_stride, y_stride, last, width)
    program, adapted = find_program(programs, row)
    if not adapted:
        return
    base, ops = tl.load(bases + row), program + tl.load(program + OPS)
    begin_op, end_op = tl.load(program + PLACES + place), tl.load(program + PLACES + place + 1)
    for number in range(begin_op + tl.program_id(2), end_op, tl.num_programs(2)):
        op = ops + number * NUM_OP_WORDS
        if tl.load(op + WIDE) == SCALED:
            tl.debug_barrier()
            _scale(out, op, base, rows, last, out_stride, tile, unit, x.dtype.element_ty)
        if tl.load(op + WIDE) == 0:
            tl.debug_barrier()  # this or the op before may have written what this one changes
            gate = find_gate(
                op, base, x, residual, begin, last, x_stride, residual_stride, block, tile, unit, x.dtype.element_ty
            )
            if tl.program_id(0) == 0:
                tl.store(gates + (number - begin_op) * gates_stride + row, gate)
            _run(
                out, x, residual, op, base, rows, last, gate, out_stride, x_stride, residual_stride, block, tile,
                middle, unit, grain, kind,
            )  # fmt: skip


@triton.jit
def _scale(
    out, op, base, rows, last, out_stride, tile: tl.constexpr, unit: tl.constexpr, dtype: tl.constexpr
):  # fmt: skip
    step, own = op + FIRST_STEP + 3 * NUM_STEP_WORDS, out + tl.multiple_of(tl.load(op + COLUMN), unit)
    width = tl.load(step + OUTER)
    factor, _ = find(step + BIAS, base, dtype)
    for start in range(0, width, tile):
        columns = start + tl.arange(0, tile)
        value = read(own, rows, columns, out_stride, last, width, dtype).to(tl.float32)
        scaled = value * read_line(factor, columns, width, dtype)
        inside = (rows[:, None] < last) & (columns[None, :] < width)
        tl.store(own + rows[:, None] * out_stride + columns[None, :], scaled.to(dtype), mask=inside)


@triton.jit
def _run(
    out, x, residual, op, base, rows, last, gate, out_stride, x_stride, residual_stride, block: tl.constexpr,
    tile: tl.constexpr, middle: tl.constexpr, unit: tl.constexpr, grain: tl.constexpr, kind: tl.constexpr,
):  # fmt: skip
    dtype = x.dtype.element_ty
    reads, between = tl.load(op + READS), tl.arange(0, middle)
    mean, scale = find_moments(op, x, residual, rows, x_stride, residual_stride, last, reads, block, tile, unit, dtype)
    step, rule_step = op + FIRST_STEP, op + FIRST_STEP + NUM_STEP_WORDS
    weight, part, rank, stride = _find_matrix(step, base, unit, grain, grain, dtype)
    rule, _, size, rule_stride = _find_matrix(rule_step, base, 1, 1, 1, dtype)
    bias, biased = find(rule_step + BIAS, base, dtype)
    inner = tl.full((block, middle), 0.0, tl.float32)
    for number in range(tl.load(step + FOLD)):
        first = tl.multiple_of(number * part, unit)
        thin = tl.full((block, middle), 0.0, tl.float32)
        for start in range(0, part, tile):
            columns = start + tl.arange(0, tile)
            left = read_input(
                op, base, x, residual, mean, scale, rows, first, columns, x_stride, residual_stride, last, part, reads,
                dtype,
            )  # fmt: skip
            thin = multiply(left, read(weight, columns, between, stride, part, rank, dtype), thin, kind)
        right = read(rule + number * rank * rule_stride, between, between, rule_stride, rank, size, dtype)
        inner = multiply(thin.to(dtype), right, inner, kind)
    inner += read_line(bias, between, tl.where(biased, size, 0), dtype)
    inner = activate(inner, tl.load(rule_step + ACTIVATION))
    _expand(
        out, op, base, rows, last, inner.to(dtype), gate, out_stride, block, tile, middle, unit, grain, kind, dtype
    )  # fmt: skip


@triton.jit
def _expand(
    out, op, base, rows, last, inner, gate, out_stride, block: tl.constexpr, tile: tl.constexpr, middle: tl.constexpr,
    unit: tl.constexpr, grain: tl.constexpr, kind: tl.constexpr, dtype: tl.constexpr,
):  # fmt: skip
    between = tl.arange(0, middle)
    rule_step, step = op + FIRST_STEP + 2 * NUM_STEP_WORDS, op + FIRST_STEP + 3 * NUM_STEP_WORDS
    rule, size, _, rule_stride = _find_matrix(rule_step, base, 1, 1, 1, dtype)
    weight, rank, part, stride = _find_matrix(step, base, 1, unit, grain, dtype)
    picks, picked = find(rule_step + BIAS, base, dtype)
    bias, biased = find(step + BIAS, base, dtype)
    gain = gate * read_float(op + GAIN)
    own = out + tl.multiple_of(tl.load(op + COLUMN), unit)
    for number in range(tl.load(step + FOLD)):
        mixing = read(rule + number * rank, between, between, rule_stride, size, rank, dtype)
        thin = multiply(inner, mixing, tl.full((block, middle), 0.0, tl.float32), kind)
        thin += read_line(picks + number * rank, between, tl.where(picked, rank, 0), dtype)
        left, first = thin.to(dtype), tl.multiple_of(number * part, unit)
        for start in range(0, part, tile):
            columns = start + tl.arange(0, tile)
            right = read(weight, between, columns, stride, rank, part, dtype)
            outer = multiply(left, right, tl.full((block, tile), 0.0, tl.float32), kind)
            outer += read_line(bias + first, columns, tl.where(biased, part, 0), dtype)
            add(own + first, rows, columns, out_stride, last, part, outer * gain)


@triton.jit
def _find_matrix(
    words, base, inner_unit: tl.constexpr, outer_unit: tl.constexpr, grain: tl.constexpr, dtype: tl.constexpr
):  # fmt: skip
    """A pointer to the weight of a step, its rows and columns, and the elements between its rows."""
    fixed, place = tl.load(words + WEIGHT), tl.load(words + WEIGHT + 1)
    size: tl.constexpr = dtype.primitive_bitwidth // 8
    address = tl.where(fixed != 0, fixed, base + place * size).to(tl.pointer_type(dtype))
    inner, outer = (
        tl.multiple_of(tl.load(words + INNER), inner_unit),
        tl.multiple_of(tl.load(words + OUTER), outer_unit),
    )
    stride = tl.multiple_of(tl.load(words + STRIDE), grain)
    return tl.multiple_of(address, grain * size), inner, outer, stride
