"""`Segments.linear` and `add_linear` in one launch."""

import pytest
import torch
from peltier_adapters.kernels.linear import add_linear, linear, linear_

from tests.adapters_store.kernels.cases import (
    DTYPES,
    NUM_SLOTS,
    SEGMENTS,
    TOKENS,
    WIDTH,
    changed,
    check,
    draw,
    own,
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
        folded = x.reshape(-1, WIDTH // fold)
        product = SEGMENTS.linear(folded, own(weight), fold=fold).view(len(x), -1)
        return product + own(bias).repeat(1, fold).repeat_interleave(torch.tensor(SEGMENTS.row_lengths), 0)

    expected = changed(torch.zeros(TOKENS, OUT * fold), lambda _, x: plain(x, weight, bias), x)
    amplitude = changed(torch.zeros(TOKENS, OUT * fold), lambda _, x: plain(x, weight.abs(), bias.abs()), x.abs())
    y = linear(x.view(-1, WIDTH // fold), weight, bias, runs(), fold)
    check(y.view(TOKENS, -1), expected, amplitude, roundings=1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_add_to_a_window_of_columns(dtype: torch.dtype):
    """add_linear leaves the other columns and the tokens without a slot as they are."""
    weight, x, wide = draw(NUM_SLOTS, WIDTH, OUT), draw(TOKENS, WIDTH).to(dtype), draw(TOKENS, 3 * OUT).to(dtype)
    before = wide.clone()
    add_linear(wide[:, OUT : 2 * OUT], x, weight, runs())
    expected, amplitude = before.float(), before.float().abs()
    expected[:, OUT : 2 * OUT] = changed(before[:, OUT : 2 * OUT], lambda y, x: y + SEGMENTS.linear(x, own(weight)), x)
    amplitude[:, OUT : 2 * OUT] = changed(
        before[:, OUT : 2 * OUT].abs(), lambda y, x: y + SEGMENTS.linear(x, own(weight.abs())), x.abs()
    )
    check(wide, expected, amplitude, roundings=1)
    assert torch.equal(wide[:, :OUT], before[:, :OUT])


def test_the_operator_keeps_its_schema():
    """Fake tensors, mutation and dispatch are as declared, so that torch.compile and graphs may hold it."""
    y, x, weight, bias = draw(TOKENS, OUT), draw(TOKENS, WIDTH), draw(NUM_SLOTS, WIDTH, OUT), draw(NUM_SLOTS, OUT)
    own_runs = runs()
    arguments = (y, x, weight, bias, own_runs.starts, own_runs.slots, own_runs.longest, 1, True)
    torch.library.opcheck(linear_, arguments)
