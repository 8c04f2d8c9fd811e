"""x W + b with the W and b of each run's slot, in one launch."""

import triton
import triton.language as tl
from torch import Tensor

from peltier_adapters.ops.kernels.runs import Runs, block_size, locate
from peltier_adapters.ops.kernels.tile import WIDEST, dot_type, multiply, padded, read, read_line, strides


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, runs: Runs, fold: int = 1) -> Tensor:
    """[tokens * fold, in] @ [slots, in, out] (+ [slots, out]) -> [tokens * fold, out]; 0 for a negative slot.

    Like the other kernels it rounds weights to the dtype of x and sums in float32.
    """
    y = x.new_empty(len(x), weight.shape[-1])
    before, after = weight.shape[-2:]
    longest = runs.longest * fold
    block, tile_out = block_size(longest, x.dtype), min(padded(after), WIDEST)
    grid = (triton.cdiv(longest, block), len(runs.slots), triton.cdiv(after, tile_out))
    _kernel[grid](
        y, x, weight, bias, runs.starts, runs.slots, *strides(y), *strides(x), *strides(weight),
        *((0,) if bias is None else strides(bias)),
        before=before, after=after, fold=fold, block=block, tile_in=min(padded(before), WIDEST), tile_out=tile_out,
        biased=bias is not None, kind=dot_type(x.dtype),
    )  # fmt: skip
    return y


@triton.jit
def _kernel(
    y, x, weight, bias, starts, slots, y_stride, x_stride, weight_slot, weight_row, bias_slot,
    before: tl.constexpr, after: tl.constexpr, fold: tl.constexpr, block: tl.constexpr, tile_in: tl.constexpr,
    tile_out: tl.constexpr, biased: tl.constexpr, kind: tl.constexpr,
):  # fmt: skip
    first, last, slot = locate(starts, slots, fold, block)
    if first >= last:
        return
    dtype = x.dtype.element_ty
    rows = first + tl.arange(0, block)
    columns = tl.program_id(2) * tile_out + tl.arange(0, tile_out)
    live = tl.where(slot < 0, 0, before)  # a negative slot reads no weight
    total = tl.full((block, tile_out), 0.0, tl.float32)
    for start in range(0, before, tile_in):
        inner = start + tl.arange(0, tile_in)
        left = read(x, rows, inner, x_stride, last, before, dtype)
        right = read(weight + slot * weight_slot, inner, columns, weight_row, live, after, dtype)
        total = multiply(left, right, total, kind)
    if biased:
        total += read_line(bias + slot * bias_slot, columns, tl.where(slot < 0, 0, after), dtype)
    inside = (rows[:, None] < last) & (columns[None, :] < after)
    tl.store(y + rows[:, None] * y_stride + columns[None, :], total.to(dtype), mask=inside)
