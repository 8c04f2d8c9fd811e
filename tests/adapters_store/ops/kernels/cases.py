"""Runs of tokens of different lengths, and the reference result of every kernel."""

from collections.abc import Callable, Sequence

import torch
from peltier_adapters.ops.kernels.runs import Runs, create_runs
from peltier_adapters.ops.op import MatmulStep
from peltier_adapters.ops.torch import multiply_all
from torch import Tensor

CPU = torch.device("cpu")
# Empty runs, a run longer than a program takes, a slot of many runs, and runs of no slot.
LENGTHS, SLOTS = (3, 0, 20, 1, 35, 5, 1, 0), (2, 0, 2, -1, 1, 2, 0, -1)
TOKENS, NUM_SLOTS, WIDTH = sum(LENGTHS), 3, 32
DTYPES = (torch.float32, torch.bfloat16)
_OWN = [(length, slot) for length, slot in zip(LENGTHS, SLOTS, strict=True) if length and slot >= 0]
_LIVE = torch.tensor([slot >= 0 for length, slot in zip(LENGTHS, SLOTS, strict=True) for _ in range(length)])
# What one rounding may cost, as a share of what is rounded: the interpreter cuts a float32 down to bfloat16, which a
# GPU rounds; in float32 a sum of some hundred terms has as many roundings.
_ROUNDING = {torch.float32: 100 * 2.0**-24, torch.bfloat16: 2.0**-7}


def runs() -> Runs:
    return create_runs(LENGTHS, SLOTS, CPU)


def draw(*shape: int) -> Tensor:
    """Float32 numbers that a bfloat16 holds exactly. What is made of them must not come near 1e-38, which the
    interpreter cannot turn into a bfloat16."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16().float()


def each(x: Tensor, steps_of: Callable[[int], Sequence[MatmulStep]]) -> Tensor:
    """The tokens of runs that have a slot, each by the steps of its run's slot."""
    pieces = x.split([length for length, _ in _OWN])
    return torch.cat([multiply_all(steps_of(slot), piece) for piece, (_, slot) in zip(pieces, _OWN, strict=True)])


def changed(y: Tensor, change: Callable[[Tensor, Tensor], Tensor], x: Tensor) -> Tensor:
    """y in float32 with its tokens that have a slot changed: (their y, their x) -> their new y."""
    y = y.float().clone()
    y[_LIVE] = change(y[_LIVE], live(x))
    return y


def live(x: Tensor) -> Tensor:
    """Those of the tokens that have a slot, in float32."""
    return x[_LIVE].float()


def check(actual: Tensor, expected: Tensor, amplitude: Tensor, roundings: int) -> None:
    """Each number is right within so many roundings of `amplitude`: the same sums over absolute values."""
    allowed = roundings * _ROUNDING[actual.dtype] * amplitude
    excess = ((actual.float() - expected).abs() - allowed).max()
    assert excess <= 0, f"beyond the rounding by {excess:.2e}, which may be {allowed.max():.2e}"
