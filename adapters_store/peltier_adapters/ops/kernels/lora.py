"""y += scale (x A) B with the factors of each run's own slot, in one launch (docs/methods.md#lora)."""

import triton
import triton.language as tl
from torch import Tensor

from peltier_adapters.ops.kernels.runs import Runs, block_size, locate
from peltier_adapters.ops.kernels.tile import WIDEST, add, dot_type, multiply, padded, read, read_scale, strides


def lora(y: Tensor, x: Tensor, down: Tensor, up: Tensor, runs: Runs, scale: Tensor | None = None) -> None:
    """Add to y [tokens, out], in place; y may be a slice of columns. x is [tokens, in], down [slots, in, r], up [slots,
    r, out] and `scale` [tokens, 1]; `up` contains the factor alpha / r."""
    before, rank = down.shape[-2:]
    after = up.shape[-1]
    block = block_size(runs.longest, x.dtype)
    _kernel[(triton.cdiv(runs.longest, block), len(runs.slots))](
        y, x, down, up, scale, runs.starts, runs.slots, *strides(y), *strides(x), *strides(down), *strides(up),
        before=before, after=after, rank=rank, block=block, tile_in=min(padded(before), WIDEST),
        tile_out=min(padded(after), WIDEST), tile_rank=padded(rank), scaled=scale is not None, kind=dot_type(x.dtype),
        num_stages=2,  # three spill a register on sm_100
    )  # fmt: skip


@triton.jit
def _kernel(
    y, x, down, up, scale, starts, slots, y_stride, x_stride, down_slot, down_row, up_slot, up_row,
    before: tl.constexpr, after: tl.constexpr, rank: tl.constexpr, block: tl.constexpr, tile_in: tl.constexpr,
    tile_out: tl.constexpr, tile_rank: tl.constexpr, scaled: tl.constexpr, kind: tl.constexpr,
):  # fmt: skip
    first, last, slot = locate(starts, slots, 1, block)
    if (first >= last) | (slot < 0):
        return
    dtype = x.dtype.element_ty
    rows, middle = first + tl.arange(0, block), tl.arange(0, tile_rank)
    inner = tl.full((block, tile_rank), 0.0, tl.float32)
    for start in range(0, before, tile_in):
        columns = start + tl.arange(0, tile_in)
        left = read(x, rows, columns, x_stride, last, before, dtype)
        right = read(down + slot * down_slot, columns, middle, down_row, before, rank, dtype)
        inner = multiply(left, right, inner, kind)
    if scaled:
        inner *= read_scale(scale, rows, last)
    between = inner.to(dtype)
    for start in range(0, after, tile_out):
        columns = start + tl.arange(0, tile_out)
        right = read(up + slot * up_slot, middle, columns, up_row, rank, after, dtype)
        outer = multiply(between, right, tl.full((block, tile_out), 0.0, tl.float32), kind)
        add(y, rows, columns, y_stride, last, after, outer)
