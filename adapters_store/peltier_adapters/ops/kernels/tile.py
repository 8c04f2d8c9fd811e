"""Tiles of matrices: their sizes, reading, adding and multiplying."""

import torch
import triton
import triton.language as tl
from torch import Tensor

# The most columns that a kernel reads at a time.
WIDEST = 64
_TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


def padded(size: int) -> int:
    """The width of a tile for `size` columns: a power of two, at least 16 as matrix units require."""
    return int(max(triton.next_power_of_2(size), 16))


def strides(tensor: Tensor) -> tuple[int, ...]:
    """The strides of slots and rows, or only of rows; the kernels require that each row is contiguous."""
    assert tensor.shape[-1] == 1 or tensor.stride(-1) == 1, f"a row of {tuple(tensor.shape)} does not lie side by side"
    return tensor.stride()[:-1]


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
def read_scale(pointer, rows, end):
    """Read one number for each row, as a column in float32; zeros at or beyond the end."""
    return tl.load(pointer + rows, mask=rows < end, other=0.0).to(tl.float32)[:, None]


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
