"""A factored Compacter in one launch."""

import pytest
import torch
from peltier_adapters.kernels.compacter import Maps, compacter, compacter_
from peltier_adapters.map_spec import LphmMap
from peltier_adapters.parts import maps
from peltier_adapters.parts.maps import ContractingLphm, ExpandingLphm
from peltier_adapters.segments import ACTIVATIONS
from peltier_adapters.tensors import Tensors
from torch import Tensor

from tests.adapters_store.kernels.cases import (
    DTYPES,
    NUM_SLOTS,
    SEGMENTS,
    TOKENS,
    WIDTH,
    changed,
    check,
    draw,
    live,
    own,
    runs,
)

SIZE = 8
Folded = tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def _bank(n: int, rank: int) -> Folded:
    """Both maps of all slots as `parts/maps.py` folds them, rounded to numbers that a bfloat16 holds."""
    spec, rule = LphmMap(n=n, rank=rank), draw(NUM_SLOTS, n, n, n) / 16

    def fold(before: int, after: int) -> maps.Map:
        shapes = spec.shapes(before, after) | {"bias": (after,)}
        tensors = Tensors({name: draw(NUM_SLOTS, 1, 1, *shape) / 2 for name, shape in shapes.items()})
        return maps.prepare(spec, tensors, rule, SEGMENTS, torch.float32)

    down, up = fold(WIDTH, SIZE), fold(SIZE, WIDTH)
    assert isinstance(down, ContractingLphm)
    assert isinstance(up, ExpandingLphm)
    first, second = (down.left, down.right, down.bias), (up.left, up.ones, up.right)
    return tuple(map(_exact, first)), tuple(map(_exact, second))  # type: ignore[return-value]


def _exact(tensor: Tensor) -> Tensor:
    return tensor.bfloat16().float().contiguous()


def _maps(bank: Folded) -> Maps:
    (first, rule_down, bias), (rule_up, ones, second) = bank
    return Maps(first[:, 0, 0], rule_down[:, 0, 0], bias[:, 0, 0], rule_up[:, 0, 0], ones, second[:, 0, 0])


def _plain(bank: Folded, y: Tensor, x: Tensor, scale: Tensor | float, activation: str | None) -> Tensor:
    """What `parts/bottleneck.py` does with these maps; without an activation over absolute values."""
    (first, rule_down, bias), (rule_up, ones, second) = (
        [own(tensor.abs() if activation is None else tensor) for tensor in side] for side in bank
    )
    narrow = Tensors({"left": first, "right": rule_down, "bias": bias})
    inner = ContractingLphm(narrow, SEGMENTS, torch.float32)(x, 0, 0)
    activated = inner if activation is None else ACTIVATIONS[activation](inner)
    n = ones.shape[-1] // second.shape[-2]
    expanding = ExpandingLphm(Tensors({"left": rule_up, "right": second}), n, SEGMENTS, torch.float32)
    return y + scale * expanding(activated, 0, 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "rank"), [(4, 1), (2, 3)])
def test_each_run_goes_through_its_own_compacter(dtype: torch.dtype, n: int, rank: int):
    """Both factored maps of the run's slot, with a gate; tokens without a slot stay as they are."""
    bank, x, y = _bank(n, rank), draw(TOKENS, WIDTH).to(dtype), draw(TOKENS, WIDTH + 1)[:, :WIDTH].to(dtype)
    scale = draw(TOKENS, 1).abs().to(dtype)
    rows = live(scale)
    expected = changed(y, lambda y, x: _plain(bank, y, x, rows, "gelu_new"), x)
    amplitude = changed(y.abs(), lambda y, x: _plain(bank, y, x, rows, None), x.abs())
    compacter(y, x, _maps(bank), "gelu_new", runs(), scale)
    check(y, expected, amplitude, roundings=4)


def test_the_operator_keeps_its_schema():
    """Fake tensors, mutation and dispatch are as declared, so that torch.compile and graphs may hold it."""
    own_runs = runs()
    arguments = (draw(TOKENS, WIDTH), draw(TOKENS, WIDTH), *_maps(_bank(4, 1)), "relu", None)
    torch.library.opcheck(compacter_, (*arguments, own_runs.starts, own_runs.slots, own_runs.longest))
