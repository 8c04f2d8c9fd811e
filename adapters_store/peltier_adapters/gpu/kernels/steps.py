"""One step of an op whose middle is too wide for `chain.py`, for all rows of a batch in one launch."""

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
    NUM_STEPS,
    OPS,
    OUTER,
    PLACES,
    READS,
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
from peltier_adapters.gpu.kernels.tile import add, dot_type, multiply, read, read_line, tile_size


def step(
    out: Tensor, x: Tensor, residual: Tensor | None, between: tuple[Tensor, Tensor], gates: Tensor, rows: Rows,
    place: int, number: int, index: int, outer: int,
) -> None:  # fmt: skip
    """Step `index` of op `number` at `place`, for the rows whose op is wide. The first step reads x and the others read
    `between[0]` [tokens, ...]. All but the last write to `between[1]`; the last adds to `out`. `outer` is the largest
    width of a result."""
    block = block_size(rows.longest, x.dtype)
    residual = x if residual is None else residual  # ops that read it are given one
    given, made = between
    tile = tile_size(x.dtype)
    _kernel[(triton.cdiv(rows.longest, block), len(rows), triton.cdiv(outer, tile))](
        out, x, residual, given, made, gates, rows.starts, rows.bases, rows.programs, place, number, index,
        *strides(out, x, residual, given, made, gates), block=block, tile=tile, kind=dot_type(x.dtype),
    )  # fmt: skip


@triton.jit(
    do_not_specialize=["place", "number", "index", "gates_stride", "given_stride", "made_stride"],
    do_not_specialize_on_alignment=["starts", "bases", "programs"],
)
def _kernel(
    out, x, residual, given, made, gates, starts, bases, programs, place, number, index, out_stride, x_stride,
    residual_stride, given_stride, made_stride, gates_stride, block: tl.constexpr, tile: tl.constexpr,
    kind: tl.constexpr,
):  # fmt: skip
    first, begin, last = locate(starts, block)
    row = tl.program_id(1)
    program, adapted = find_program(programs, row)
    if (first >= last) | (not adapted):
        return
    op_number = tl.load(program + PLACES + place) + number
    if op_number >= tl.load(program + PLACES + place + 1):
        return
    base, op = tl.load(bases + row), program + tl.load(program + OPS) + op_number * NUM_OP_WORDS
    num_steps = tl.load(op + NUM_STEPS)
    if (tl.load(op + WIDE) != 1) | (index >= num_steps):
        return
    dtype = x.dtype.element_ty
    if (index == 0) & (tl.program_id(0) == 0) & (tl.program_id(2) == 0):
        gate = find_gate(op, base, x, residual, begin, last, x_stride, residual_stride, block, tile, 1, dtype)
        tl.store(gates + number * gates_stride + row, gate)
    words, rows = op + FIRST_STEP + index * NUM_STEP_WORDS, first + tl.arange(0, block)
    columns = tl.program_id(2) * tile + tl.arange(0, tile)
    inner, outer = tl.load(words + INNER), tl.load(words + OUTER)
    weight, _ = find(words + WEIGHT, base, dtype)
    bias, biased = find(words + BIAS, base, dtype)
    stride, reads = tl.load(words + STRIDE), tl.load(op + READS)
    mean, scale = find_moments(op, x, residual, rows, x_stride, residual_stride, last, reads, block, tile, 1, dtype)
    for fold in range(tl.load(words + FOLD)):
        total = tl.full((block, tile), 0.0, tl.float32)
        for start in range(0, inner, tile):
            inside = start + tl.arange(0, tile)
            if index == 0:
                left = read_input(
                    op, base, x, residual, mean, scale, rows, fold * inner, inside, x_stride, residual_stride, last,
                    inner, reads, dtype,
                )  # fmt: skip
            else:
                left = read(given + fold * inner, rows, inside, given_stride, last, inner, dtype)
            total = multiply(left, read(weight, inside, columns, stride, inner, outer, dtype), total, kind)
        total += read_line(bias, columns, tl.where(biased, outer, 0), dtype)
        total = activate(total, tl.load(words + ACTIVATION))
        inside = (rows[:, None] < last) & (columns[None, :] < outer)
        if index + 1 < num_steps:
            to = made + rows[:, None] * made_stride + fold * outer + columns[None, :]
            tl.store(to, total.to(dtype), mask=inside)
        else:
            gain = read_float(op + GAIN)
            if index > 0:
                gain *= tl.load(gates + number * gates_stride + row)
            add(out + tl.load(op + COLUMN) + fold * outer, rows, columns, out_stride, last, outer, total * gain)
