"""A factored Compacter in one launch."""

import pytest
import torch
from peltier_adapters.ops.kernels.compacter import Maps, compacter
from peltier_adapters.ops.op import MatmulStep
from peltier_adapters.parts import maps
from peltier_adapters.spec.maps import LphmMap
from peltier_backbone.native.program import Activation
from torch import Tensor

from tests.adapters_store.ops.kernels.cases import (
    CPU,
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

SIZE = 8


def _bank(n: int, rank: int) -> Maps:
    """Both maps of all slots as `parts/compacter.py` folds them, rounded to numbers that a bfloat16 holds."""
    spec = LphmMap(n=n, rank=rank)

    def fold(slot: int, before: int, after: int) -> list[Tensor]:
        shapes = spec.shapes(before, after) | {"bias": (after,)}
        tensors = {name: draw(NUM_SLOTS, 1, 1, *shape)[slot] / 2 for name, shape in shapes.items()}
        ((first, second),) = maps.lower(spec, tensors, draw(NUM_SLOTS, n, n, n)[slot] / 16, CPU)
        return [one for one in (first.weight, first.bias, second.weight, second.bias) if one is not None]

    first, rule_down, bias = map(_exact, zip(*(fold(slot, WIDTH, SIZE) for slot in range(NUM_SLOTS)), strict=True))
    rule_up, ones, second = map(_exact, zip(*(fold(slot, SIZE, WIDTH) for slot in range(NUM_SLOTS)), strict=True))
    return Maps(first, rule_down, bias, rule_up, ones, second)


def _exact(tensors: tuple[Tensor, ...]) -> Tensor:
    return torch.stack(tensors).bfloat16().float()


def _plain(bank: Maps, y: Tensor, x: Tensor, scale: Tensor | float, activation: Activation | None) -> Tensor:
    """The same steps by torch; without an activation over absolute values."""
    first, rule_down, bias, rule_up, ones, second = (one.abs() if activation is None else one for one in bank)
    n = ones.shape[-1] // second.shape[-2]

    def steps_of(slot: int) -> tuple[MatmulStep, ...]:
        return (
            MatmulStep(first[slot], fold=n),
            MatmulStep(rule_down[slot], bias[slot], activation=activation or "none"),
            MatmulStep(rule_up[slot], ones[slot]),
            MatmulStep(second[slot], fold=n),
        )

    return y + scale * each(x, steps_of)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "rank"), [(4, 1), (2, 3)])
def test_each_run_goes_through_its_own_compacter(dtype: torch.dtype, n: int, rank: int):
    """Both factored maps of the run's slot, with a gate; tokens without a slot stay as they are."""
    bank, x, y = _bank(n, rank), draw(TOKENS, WIDTH).to(dtype), draw(TOKENS, WIDTH + 1)[:, :WIDTH].to(dtype)
    scale = draw(TOKENS, 1).abs().to(dtype)
    rows = live(scale)
    expected = changed(y, lambda y, x: _plain(bank, y, x, rows, "gelu_new"), x)
    amplitude = changed(y.abs(), lambda y, x: _plain(bank, y, x, rows, None), x.abs())
    compacter(y, x, bank, "gelu_new", runs(), scale)
    check(y, expected, amplitude, roundings=4)
