"""A dense bottleneck in one launch."""

import pytest
import torch
from peltier_adapters.ops.kernels.bottleneck import Maps, bottleneck
from peltier_adapters.ops.kernels.runs import Runs
from peltier_adapters.ops.op import MatmulStep
from peltier_adapters.ops.torch import ACTIVATIONS
from peltier_backbone.native.program import Activation
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

SIZE = 12
# [slots, sites, layers, …] as in a bank; the kernel is given one site and layer of it.
BANK = (
    draw(NUM_SLOTS, 2, 3, WIDTH, SIZE) / 4,
    draw(NUM_SLOTS, 2, 3, SIZE),
    draw(NUM_SLOTS, 2, 3, SIZE, WIDTH) / 4,
    draw(NUM_SLOTS, 2, 3, WIDTH),
)
MAPS = Maps(*(tensor[:, 1, 2] for tensor in BANK))


def _plain(y: Tensor, x: Tensor, activation: Activation, scale: Tensor | float, *, absolute: bool = False) -> Tensor:
    """The same steps by torch; with `absolute` over absolute values, which no activation makes larger."""
    down, down_bias, up, up_bias = (tensor.abs() if absolute else tensor for tensor in MAPS)

    def steps_of(slot: int) -> tuple[MatmulStep, MatmulStep]:
        first = MatmulStep(down[slot], down_bias[slot], activation="none" if absolute else activation)
        return first, MatmulStep(up[slot], up_bias[slot])

    return y + scale * each(x, steps_of)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS.keys() - {"none", "tanh"}))
def test_each_run_goes_through_its_own_bottleneck(dtype: torch.dtype, activation: Activation):
    """Maps of the run's slot, every activation; tokens without a slot stay as they are."""
    x, y = draw(TOKENS, WIDTH).to(dtype), draw(TOKENS, WIDTH + 1)[:, :WIDTH].to(dtype)
    expected = changed(y, lambda y, x: _plain(y, x, activation, 1.0), x)
    amplitude = changed(y.abs(), lambda y, x: _plain(y, x, activation, 1.0, absolute=True), x.abs())
    bottleneck(y, x, MAPS, activation, runs())
    check(y, expected, amplitude, roundings=2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_scale_a_token_may_hold_back_what_is_added_to_the_input_itself(dtype: torch.dtype):
    """UniPELT's gate; and x may be y."""
    y, scale = draw(TOKENS, WIDTH).to(dtype), draw(TOKENS, 1).abs().to(dtype)
    rows = live(scale)
    expected = changed(y, lambda y, x: _plain(y, x, "relu", rows), y)
    amplitude = changed(y.abs(), lambda y, x: _plain(y, x, "relu", rows, absolute=True), y.abs())
    bottleneck(y, y, MAPS, "relu", runs(), scale)
    check(y, expected, amplitude, roundings=2)


def test_other_slots_in_the_same_tensor_are_read():
    """Slots are an input, which a captured graph reads again: what they were at the first call is not kept."""
    first, x = runs(), draw(TOKENS, WIDTH)
    y, again = torch.zeros(TOKENS, WIDTH), torch.zeros(TOKENS, WIDTH)
    bottleneck(y, x, MAPS, "relu", first)
    first.slots.copy_(torch.tensor([0, 0, 1, 1, 2, 2, -1, 0]))
    bottleneck(again, x, MAPS, "relu", first)
    expected = torch.zeros(TOKENS, WIDTH)
    bottleneck(expected, x, MAPS, "relu", Runs(first.starts, first.slots.clone(), first.longest))
    assert torch.equal(again, expected)
    assert not torch.equal(again, y)
