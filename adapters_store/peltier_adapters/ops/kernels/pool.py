"""One vector for each row, in one launch."""

import triton
import triton.language as tl
from torch import Tensor

from peltier_adapters.ops.kernels.rows import Rows, strides

_BLOCK, _TILE = 32, 64


def pool(y: Tensor, x: Tensor, rows: Rows, means: Tensor) -> None:
    """Write to y [rows, width], in float32, the mean over a row's tokens of x where `means` [rows] is not 0, else its
    first token; 0 for an empty row."""
    _kernel[(triton.cdiv(x.shape[1], _TILE), len(rows))](
        y, x, rows.starts, means, *strides(y, x), x.shape[1], block=_BLOCK, tile=_TILE
    )


@triton.jit(do_not_specialize_on_alignment=["starts", "means"])
def _kernel(y, x, starts, means, y_stride, x_stride, width, block: tl.constexpr, tile: tl.constexpr):
    row, columns = tl.program_id(1), tl.program_id(0) * tile + tl.arange(0, tile)
    first, last = tl.load(starts + row), tl.load(starts + row + 1)
    read_to = tl.where(tl.load(means + row) != 0, last, tl.minimum(first + 1, last))
    total = tl.full((block, tile), 0.0, tl.float32)
    for start in range(first, read_to, block):
        rows = start + tl.arange(0, block)
        inside = (rows[:, None] < read_to) & (columns[None, :] < width)
        total += tl.load(x + rows[:, None] * x_stride + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / tl.maximum(read_to - first, 1).to(tl.float32)
    tl.store(y + row * y_stride + columns, mean, mask=columns < width)
