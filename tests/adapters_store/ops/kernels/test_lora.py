"""LoRA in one launch."""

import pytest
import torch
from peltier_adapters.ops.kernels.lora import lora
from peltier_adapters.ops.op import MatmulStep
from torch import Tensor

from tests.adapters_store.ops.kernels.cases import (
    DTYPES,
    NUM_SLOTS,
    TOKENS,
    WIDTH,
    changed,
    check,
    draw,
    each,
    live,
    runs,
)

RANK, OUT = 6, 24
DOWN, UP = draw(NUM_SLOTS, 2, WIDTH, RANK)[:, 1], draw(NUM_SLOTS, 2, RANK, OUT)[:, 1]


def _plain(y: Tensor, x: Tensor, scale: Tensor | float, *, absolute: bool = False) -> Tensor:
    """The same steps by torch."""
    down, up = (tensor.abs() if absolute else tensor for tensor in (DOWN, UP))
    return y + scale * each(x, lambda slot: (MatmulStep(down[slot]), MatmulStep(up[slot])))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gated", [False, True])
def test_each_run_adds_its_own_product(dtype: torch.dtype, gated: bool):
    """Factors of the run's slot, into a window of columns, scaled token by token; no slot, no change."""
    x, wide, scale = draw(TOKENS, WIDTH).to(dtype), draw(TOKENS, 2 * OUT).to(dtype), draw(TOKENS, 1).abs().to(dtype)
    before, y = wide.clone(), wide[:, OUT:]
    rows = live(scale) if gated else 1.0
    expected = changed(y, lambda y, x: _plain(y, x, rows), x)
    amplitude = changed(y.abs(), lambda y, x: _plain(y, x, rows, absolute=True), x.abs())
    lora(y, x, DOWN, UP, runs(), scale if gated else None)
    check(y, expected, amplitude, roundings=2)
    assert torch.equal(wide[:, :OUT], before[:, :OUT])
