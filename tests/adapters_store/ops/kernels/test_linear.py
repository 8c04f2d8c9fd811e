"""One product of all runs in one launch."""

import pytest
import torch
from peltier_adapters.ops.kernels.linear import linear
from peltier_adapters.ops.op import MatmulStep

from tests.adapters_store.ops.kernels.cases import (
    DTYPES,
    NUM_SLOTS,
    TOKENS,
    WIDTH,
    changed,
    check,
    draw,
    each,
    runs,
)

OUT = 20


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fold", [1, 4])
def test_each_run_meets_its_own_weights(dtype: torch.dtype, fold: int):
    """Product and bias are those of the run's slot, read where they lie in a bank of sites; no slot gives 0."""
    weight, bias = draw(NUM_SLOTS, 2, WIDTH // fold, OUT)[:, 1], draw(NUM_SLOTS, 2, OUT)[:, 1]
    x = draw(TOKENS, WIDTH).to(dtype)

    def plain(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return each(x, lambda slot: (MatmulStep(weight[slot], bias[slot], fold=fold),))

    expected = changed(torch.zeros(TOKENS, OUT * fold), lambda _, x: plain(x, weight, bias), x)
    amplitude = changed(torch.zeros(TOKENS, OUT * fold), lambda _, x: plain(x, weight.abs(), bias.abs()), x.abs())
    y = linear(x.view(-1, WIDTH // fold), weight, bias, runs(), fold)
    check(y.view(TOKENS, -1), expected, amplitude, roundings=1)
