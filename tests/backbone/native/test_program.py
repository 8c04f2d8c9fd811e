"""Whole ops of several steps against a loop over groups, each library that this processor can run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from peltier_backbone.linear.activation import Activation
from peltier_backbone.native.library import Library
from peltier_backbone.native.program import NativeProgram, PlacedOp, Step, place_op, step
from peltier_backbone.native.rows import Table, TableGroup
from torch import Tensor
from torch.nn import functional as F

LENGTHS, WIDTH = (1, 20, 700), 24
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "none": lambda y: y,
    "relu": F.relu,
    "swish": F.silu,
    "gelu_new": lambda y: F.gelu(y, approximate="tanh"),
}


def _draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@dataclass(frozen=True)
class Product:
    """A step of each group, as tensors [groups, in, out] and [groups, out]."""

    weight: Tensor
    bias: Tensor | None = None
    fold: int = 1
    activation: Activation = "none"

    def step(self, group: int) -> Step:
        bias = None if self.bias is None else self.bias[group]
        return step(self.weight[group], bias, fold=self.fold, activation=self.activation)


def _product(
    inner: int, outer: int, *, biased: bool = False, fold: int = 1, activation: Activation = "none"
) -> Product:
    bias = _draw(len(LENGTHS), outer) if biased else None
    return Product(_draw(len(LENGTHS), inner, outer) / inner**0.5, bias, fold, activation)


OPS = {
    "bottleneck": [_product(WIDTH, 5, biased=True, activation="swish"), _product(5, WIDTH, biased=True)],
    "low rank": [_product(WIDTH, 1), _product(1, WIDTH)],
    "compacter": [
        _product(8, 2, fold=3),
        _product(6, 17, biased=True, activation="gelu_new"),
        _product(17, 9, biased=True),
        _product(3, 8, fold=3),
    ],
    "unlike": [_product(WIDTH, 7, activation="relu"), _product(7, WIDTH, biased=True)],
}


def _plain(x: Tensor, products: Sequence[Product], group: int) -> Tensor:
    for one in products:
        x = x.reshape(len(x) * one.fold, -1) @ one.weight[group]
        x = x if one.bias is None else x + one.bias[group]
        x = ACTIVATIONS[one.activation](x).reshape(len(x) // one.fold, -1)
    return x


def _op(name: str, group: int, gain: float) -> PlacedOp:
    return place_op(0, [one.step(group) for one in OPS[name]], gain=gain)


def _table(names: Sequence[str], gain: float, lengths: Sequence[int] = LENGTHS) -> Table:
    """Each row with the op of this name, by weights of its own."""
    programs = [NativeProgram([_op(name, group, gain)], 1, {}, 0, None) for group, name in enumerate(names)]
    return Table(lengths, [TableGroup(1, program) for program in programs])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("gain", [1.0, 0.75])
@pytest.mark.parametrize("names", [(name,) * 3 for name in OPS] + [("compacter", "low rank", "bottleneck")], ids=str)
@torch.inference_mode()
def test_each_row_meets_its_own_steps(names: tuple[str, ...], gain: float, dtype: torch.dtype, native: Library):
    """One after the other, scaled and added in one call, also where groups have unlike ones; rounded once, where y is x
    itself too."""
    x = _draw(sum(LENGTHS), WIDTH).to(dtype)
    pieces = x.float().split(LENGTHS)
    made = torch.cat([_plain(pieces[group], OPS[name], group) for group, name in enumerate(names)])
    apart, in_place, gates = x.clone(), x.clone(), torch.empty(1, len(LENGTHS))
    native.adapt(apart, x, None, _table(names, gain), 0, gates)
    native.adapt(in_place, in_place, None, _table(names, gain), 0, gates)
    assert torch.equal(apart, in_place)
    expected = (x + gain * made).to(dtype)
    torch.testing.assert_close(apart, expected, atol=1e-5 if dtype == torch.float32 else 2e-2, rtol=1e-2)


@torch.inference_mode()
def test_weights_are_read_at_their_places(native: Library):
    """A program of tensors on the meta device stands for any adapter, wherever its weights lie."""
    template, flats = torch.empty(4 * WIDTH + 8, device="meta"), _draw(2, 4 * WIDTH + 8)
    down, up = template[8:].as_strided((WIDTH, 2), (2, 1)), template.as_strided((2, WIDTH), (WIDTH, 1), 2 * WIDTH + 8)
    program = NativeProgram([place_op(0, [step(down, None), step(up, None)])], 1, {}, 0, None)
    table = Table(
        (3, 2, 4),
        [TableGroup(1, program, flats[1].data_ptr()), TableGroup(1), TableGroup(1, program, flats[0].data_ptr())],
    )
    x = _draw(9, WIDTH)
    y = x.clone()
    native.adapt(y, x, None, table, 0, torch.empty(1, 3))
    maps = [flat[8 : 2 * WIDTH + 8].view(WIDTH, 2) @ flat[2 * WIDTH + 8 :].view(2, WIDTH) for flat in flats]
    expected = torch.cat((x[:3] + x[:3] @ maps[1], x[3:5], x[5:] + x[5:] @ maps[0]))
    torch.testing.assert_close(y, expected, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_a_row_is_the_same_in_any_company(native: Library):
    """To the last bit, alone or among any other rows."""
    x, gates = _draw(sum(LENGTHS), WIDTH), torch.empty(1, len(LENGTHS))
    y, other = torch.zeros_like(x), torch.zeros_like(x)
    native.adapt(y, x, None, _table(("bottleneck", "compacter", "unlike"), 1.0), 0, gates)
    native.adapt(other, x, None, _table(("bottleneck", "low rank", "unlike"), 1.0), 0, gates)
    assert torch.equal(y[:1], other[:1])
    assert torch.equal(y[21:], other[21:])
    program = NativeProgram([_op("unlike", 2, 1.0)], 1, {}, 0, None)
    alone = torch.zeros(1, WIDTH)
    native.adapt(alone, x[100:101], None, Table((1,), [TableGroup(1, program)]), 0, gates)
    assert torch.equal(y[100:101], alone)
