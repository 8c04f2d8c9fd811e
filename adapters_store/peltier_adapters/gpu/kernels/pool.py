"""One vector for each row, in one launch."""

import triton
import triton.language as tl
from torch import Tensor

from peltier_adapters.gpu.kernels.rows import Rows, strides

_BLOCK, _TILE = 32, 64


# How a row's tokens become one vector, by the name in `HeadSpec`; any other pooling begins with the first token.
MODES = {"mean": 1, "max": 2}


def pool(y: Tensor, x: Tensor, rows: Rows, modes: Tensor) -> None:
    """Write to y [rows, width], in float32, one vector for the tokens of each row of x by its number in `modes` [rows]:
    1 their mean, 2 their maximum in each column, 0 the first token; 0 for an empty row."""
    _kernel[(triton.cdiv(x.shape[1], _TILE), len(rows))](
        y, x, rows.starts, modes, *strides(y, x), x.shape[1], block=_BLOCK, tile=_TILE
    )


@triton.jit(do_not_specialize_on_alignment=["starts", "modes"])
def _kernel(y, x, starts, modes, y_stride, x_stride, width, block: tl.constexpr, tile: tl.constexpr):
    row, columns = tl.program_id(1), tl.program_id(0) * tile + tl.arange(0, tile)
    first, last = tl.load(starts + row), tl.load(starts + row + 1)
    mode = tl.load(modes + row)
    read_to = tl.where(mode != 0, last, tl.minimum(first + 1, last))
    # One tile for either kind: two spill registers.
    neutral = tl.where(mode == 2, float("-inf"), 0.0)
    found = tl.full((block, tile), 0.0, tl.float32) + neutral
    for start in range(first, read_to, block):
        rows = start + tl.arange(0, block)
        inside = (rows[:, None] < read_to) & (columns[None, :] < width)
        values = tl.load(x + rows[:, None] * x_stride + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        values = tl.where(inside, values, neutral)
        found = tl.where(mode == 2, tl.maximum(found, values), found + values)
    mean = tl.sum(found, 0) / tl.maximum(read_to - first, 1).to(tl.float32)
    pooled = tl.where(mode == 2, tl.max(found, 0), mean)
    tl.store(y + row * y_stride + columns, tl.where(read_to > first, pooled, 0.0), mask=columns < width)
