"""A norm of x, or of x + residual, with the weights of each row's adapter, in one launch."""

import triton
import triton.language as tl
from peltier_backbone.linear.norm import Norm
from torch import Tensor

from peltier_adapters.gpu.kernels.rows import NORMS, NUM_NORM_WORDS, Rows, find, find_program, locate, strides
from peltier_adapters.gpu.kernels.tile import read, read_line

# Elements that one Triton program norms at a time.
_ELEMENTS = 4096


def norm(x: Tensor, residual: Tensor | None, rows: Rows, index: int, base: Norm) -> Tensor:
    """Norm `index` of the tokens of all rows; `base` where an adapter has no weights of its own."""
    y, tile = x.new_empty(x.shape), int(triton.next_power_of_2(x.shape[1]))
    block = max(_ELEMENTS // tile, 1)
    _kernel[(triton.cdiv(rows.longest, block), len(rows))](
        y, x, residual, base.weight, base.bias, rows.starts, rows.bases, rows.programs, index,
        *strides(y, x, residual), x.shape[1], base.eps, summed=residual is not None, biased=base.bias is not None,
        centered=base.centered, block=block, tile=tile,
    )  # fmt: skip
    return y


@triton.jit(do_not_specialize=["index"], do_not_specialize_on_alignment=["starts", "bases", "programs"])
def _kernel(
    y, x, residual, base_weight, base_bias, starts, bases, programs, index, y_stride, x_stride, residual_stride, width,
    eps, summed: tl.constexpr, biased: tl.constexpr, centered: tl.constexpr, block: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    first, _, last = locate(starts, block)
    if first >= last:
        return
    dtype = x.dtype.element_ty
    row, rows, columns = tl.program_id(1), first + tl.arange(0, block), tl.arange(0, tile)
    value = read(x, rows, columns, x_stride, last, width, dtype).to(tl.float32)
    if summed:
        value += read(residual, rows, columns, residual_stride, last, width, dtype).to(tl.float32)
        value = value.to(dtype).to(tl.float32)
    inside = columns[None, :] < width
    if centered:
        value -= (tl.sum(value, 1) / width)[:, None]
        value = tl.where(inside, value, 0.0)
    value *= tl.rsqrt(tl.sum(value * value, 1) / width + eps)[:, None]
    weight = read_line(base_weight, columns, width, dtype)
    bias = tl.full((1, tile), 0.0, tl.float32)
    if biased:
        bias = read_line(base_bias, columns, width, dtype)
    program, adapted = find_program(programs, row)
    if adapted:
        words, base = program + tl.load(program + NORMS) + index * NUM_NORM_WORDS, tl.load(bases + row)
        own, present = find(words, base, dtype)
        weight = tl.where(present, read_line(own, columns, tl.where(present, width, 0), dtype), weight)
        own, present = find(words + 2, base, dtype)
        bias = tl.where(present, read_line(own, columns, tl.where(present, width, 0), dtype), bias)
    to = y + rows[:, None] * y_stride + columns[None, :]
    tl.store(to, (value * weight + bias).to(dtype), mask=inside & (rows[:, None] < last))
