"""Tiles of matrices: how they are cut and how they are multiplied."""

import torch
import triton
import triton.language as tl
from torch import Tensor

# Columns that are read at a time.
WIDEST = 64
_TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


def padded(size: int) -> int:
    """The width of a tile that holds `size` columns: a power of two that a matrix unit multiplies."""
    return int(max(triton.next_power_of_2(size), 16))


def strides(tensor: Tensor) -> tuple[int, ...]:
    """How far apart slots and rows are, or just rows; what a row holds lies side by side, which kernels rely on."""
    assert tensor.shape[-1] == 1 or tensor.stride(-1) == 1, f"a row of {tuple(tensor.shape)} does not lie side by side"
    return tensor.stride()[:-1]


def dot_type(dtype: torch.dtype) -> tl.dtype:
    """What tiles of `dtype` are multiplied as, into float32. Triton's interpreter cannot multiply bfloat16; in float32
    the products of such numbers are exact, as they are on a matrix unit."""
    return tl.float32 if triton.knobs.runtime.interpret else _TYPES[dtype]


@triton.jit
def read(pointer, rows, columns, stride, row_end, column_end, dtype: tl.constexpr):
    """Rows and columns of a matrix below their ends, zeros beyond, rounded to `dtype`."""
    inside = (rows[:, None] < row_end) & (columns[None, :] < column_end)
    return tl.load(pointer + rows[:, None] * stride + columns[None, :], mask=inside, other=0.0).to(dtype)


@triton.jit
def read_line(pointer, columns, end, dtype: tl.constexpr):
    """Columns of a vector below its end, zeros beyond, rounded to `dtype`, as one row in float32."""
    return tl.load(pointer + columns, mask=columns < end, other=0.0).to(dtype).to(tl.float32)[None, :]


@triton.jit
def read_scale(pointer, rows, end):
    """One number a row, as a column in float32."""
    return tl.load(pointer + rows, mask=rows < end, other=0.0).to(tl.float32)[:, None]


@triton.jit
def add(pointer, rows, columns, stride, row_end, column_end, value):
    """Add `value` to rows and columns of a matrix below their ends; rounded once."""
    inside = (rows[:, None] < row_end) & (columns[None, :] < column_end)
    place = pointer + rows[:, None] * stride + columns[None, :]
    value += tl.load(place, mask=inside, other=0.0).to(tl.float32)
    tl.store(place, value.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def multiply(a, b, total, kind: tl.constexpr):
    """total + a b. Float32 stays float32: ten bits of mantissa would break the promise of 1e-5."""
    return tl.dot(a.to(kind), b.to(kind), total, input_precision="ieee")
