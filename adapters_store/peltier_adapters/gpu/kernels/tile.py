"""Tiles of matrices: their sizes, reading, adding and multiplying."""

import torch
import triton
import triton.language as tl

# The largest middle of an op that stays in registers.
MIDDLE = 64
_TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


def tile_size(dtype: torch.dtype) -> int:
    """The columns that a kernel reads at a time. More would spill registers, but the interpreter has none."""
    if triton.knobs.runtime.interpret:
        return 64
    return 16 if dtype == torch.float32 else 32


def dot_type(dtype: torch.dtype) -> tl.dtype:
    """The type in which tiles of `dtype` are multiplied, into float32. Triton's interpreter cannot multiply bfloat16;
    products of bfloat16 numbers are exact in float32, as they are on a matrix unit."""
    return tl.float32 if triton.knobs.runtime.interpret else _TYPES[dtype]


@triton.jit
def read(pointer, rows, columns, stride, row_end, column_end, dtype: tl.constexpr):
    """Read rows and columns of a matrix, rounded to `dtype`; those at or beyond their ends are zeros."""
    inside = (rows[:, None] < row_end) & (columns[None, :] < column_end)
    return tl.load(pointer + rows[:, None] * stride + columns[None, :], mask=inside, other=0.0).to(dtype)


@triton.jit
def read_line(pointer, columns, end, dtype: tl.constexpr):
    """Read columns of a vector, rounded to `dtype`, as one row in float32; those at or beyond its end are zeros."""
    return tl.load(pointer + columns, mask=columns < end, other=0.0).to(dtype).to(tl.float32)[None, :]


@triton.jit
def copy(to, source, rows, columns, to_stride, source_stride, row_end, column_end):
    """Copy rows and columns of a matrix below their ends."""
    inside = (rows[:, None] < row_end) & (columns[None, :] < column_end)
    value = tl.load(source + rows[:, None] * source_stride + columns[None, :], mask=inside, other=0.0)
    tl.store(to + rows[:, None] * to_stride + columns[None, :], value, mask=inside)


@triton.jit
def add(pointer, rows, columns, stride, row_end, column_end, value):
    """Add `value` to rows and columns of a matrix below their ends; each sum is rounded once."""
    inside = (rows[:, None] < row_end) & (columns[None, :] < column_end)
    place = pointer + rows[:, None] * stride + columns[None, :]
    value += tl.load(place, mask=inside, other=0.0).to(tl.float32)
    tl.store(place, value.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def multiply(a, b, total, kind: tl.constexpr):
    """total + a b. Float32 is not rounded to TF32: ten bits of mantissa would break the promised accuracy of 1e-5."""
    return tl.dot(a.to(kind), b.to(kind), total, input_precision="ieee")
