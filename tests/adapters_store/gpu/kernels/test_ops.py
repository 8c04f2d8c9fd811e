"""The ops of rows of different adapters in one launch, compared with torch."""

from collections.abc import Callable

import pytest
import torch
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.ops.op import AddedBias, FusedMatmul, Gate, MatmulStep, Normed, NormWeights, Op, Program, Scaled
from peltier_adapters.ops.torch import ACTIVATIONS
from peltier_backbone.linear.norm import LayerNorm, Norm, RMSNorm

from tests.adapters_store.gpu.kernels.cases import (
    DTYPES,
    MAX_ELEMENTS,
    TOKENS,
    TRITON,
    WIDTH,
    Batch,
    Cutter,
    check,
    draw,
)

Cut = Callable[..., torch.Tensor]
BASE = LayerNorm(draw(WIDTH, seed=7), draw(WIDTH, seed=8), 1e-5)


def _bottleneck(cut: Cut, size: int, **options: object) -> FusedMatmul:
    down = MatmulStep(cut(WIDTH, size), cut(size), activation="gelu")
    return FusedMatmul("ffn", 0, (down, MatmulStep(cut(size, WIDTH), cut(WIDTH))), **options)  # type: ignore[arg-type]


def _lowrank(cut: Cut) -> FusedMatmul:
    return FusedMatmul("ffn", 0, (
        MatmulStep(cut(WIDTH, 2)), MatmulStep(cut(2, 7), cut(7), activation="swish"),
        MatmulStep(cut(7, 3)), MatmulStep(cut(3, WIDTH), cut(WIDTH)),
    ))  # fmt: skip


def _compacter(cut: Cut, n: int = 4, size: int = 5, **options: object) -> FusedMatmul:
    picks = draw(2 * n * n, seed=5)
    return FusedMatmul("ffn", 0, (
        MatmulStep(cut(WIDTH // n, n), fold=n), MatmulStep(cut(n * n, size), cut(size), activation="gelu_new"),
        MatmulStep(cut(size, 2 * n * n), picks), MatmulStep(cut(2 * n, WIDTH // n), fold=n),
    ), **options)  # type: ignore[arg-type]  # fmt: skip


def _gate(cut: Cut, column: int | None = None) -> Gate:
    return Gate("one", 0, cut(WIDTH), cut()) if column is None else Gate("one", 0, cut(WIDTH, 2), cut(2), column)


KINDS: dict[str, Callable[[Cut], list[Op]]] = {
    "bottleneck": lambda cut: [_bottleneck(cut, 5, gain=0.5)],
    "bottleneck of the sum": lambda cut: [_bottleneck(cut, 64, reads="sum", gate=_gate(cut))],
    "bottleneck of the norm": lambda cut: [_bottleneck(cut, 9, reads=Normed(0, BASE), gate=_gate(cut))],
    "bottleneck of an own norm": lambda cut: [
        _bottleneck(cut, 9, reads=Normed(0, BASE)), NormWeights(0, cut(WIDTH), None)
    ],
    "wide bottleneck": lambda cut: [_bottleneck(cut, 70, gate=_gate(cut), gain=2.0)],
    "lowrank": lambda cut: [_lowrank(cut)],
    "compacter": lambda cut: [_compacter(cut, gain=2.0, gate=_gate(cut))],
    "wide compacter": lambda cut: [_compacter(cut, size=66)],
    "lora of the central gate": lambda cut: [
        FusedMatmul("ffn", 0, (MatmulStep(cut(WIDTH, 3)), MatmulStep(cut(3, 8))), column=8, gate=_gate(cut, column))
        for column in (0,)
    ],
    "bias": lambda cut: [AddedBias("ffn", 0, cut(5), draw(5), column=3)],
    "scale": lambda cut: [Scaled("ffn", 0, cut(5), column=3)],
    "scale before a product": lambda cut: [_bottleneck(cut, 5), Scaled("ffn", 0, cut(WIDTH))],
}  # fmt: skip


# The self-check computes every kind of op in bfloat16.
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_each_row_gets_its_own_ops(kind: str, dtype: torch.dtype):
    """Beside rows of another program and a row without an adapter; the output of a sub-layer is changed."""
    batch = Batch(KINDS[kind](Cutter()), [_bottleneck(Cutter(), 3)])
    y, residual = draw(TOKENS, WIDTH, seed=1), draw(TOKENS, WIDTH, seed=2)
    expected = y.clone()
    expected = batch.by_torch().act("ffn", 0, expected, expected, residual)
    own, given = y.to(dtype), residual.to(dtype)
    check(batch.by_triton(dtype).act("ffn", 0, own, own, given), expected)
    assert torch.equal(own.float(), y)  # other rows may still read it


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("apart", [True, False])
def test_ops_of_one_place_all_act(apart: bool, dtype: torch.dtype):
    """Three LoRAs and a bias of a fused projection, in different columns or in the same ones."""
    cut = Cutter()
    ops: list[Op] = [
        FusedMatmul("query_key_value", 0, (MatmulStep(cut(WIDTH, 3)), MatmulStep(cut(3, 8))), column=8 * number * apart)
        for number in range(3)
    ]
    batch = Batch([*ops, AddedBias("query_key_value", 0, cut(8), column=24 * apart)])
    x, y = draw(TOKENS, WIDTH, seed=1), draw(TOKENS, 32, seed=2)
    found = batch.by_triton(dtype).act("query_key_value", 0, y.clone().to(dtype), x.to(dtype))
    check(found, batch.by_torch().act("query_key_value", 0, y.clone(), x))


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_every_activation_is_known(activation: str):
    cut = Cutter()
    down = MatmulStep(cut(WIDTH, 5), cut(5), activation=activation)  # type: ignore[arg-type]
    batch = Batch([FusedMatmul("ffn", 0, (down, MatmulStep(cut(5, WIDTH), cut(WIDTH))))])
    x = draw(TOKENS, WIDTH, seed=1)
    check(batch.by_triton(torch.float32).act("ffn", 0, x, x), batch.by_torch().act("ffn", 0, x.clone(), x.clone()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("base", [BASE, RMSNorm(draw(WIDTH, seed=7), 1e-6)])
@pytest.mark.parametrize("summed", [True, False])
def test_each_row_has_its_own_norm(summed: bool, base: Norm, dtype: torch.dtype):
    """Weight and bias, the bias alone, or the backbone's own."""
    cut, other = Cutter(), Cutter()
    batch = Batch([NormWeights(1, cut(WIDTH), cut(WIDTH))], [NormWeights(1, None, other(WIDTH))])
    x, residual = draw(TOKENS, WIDTH, seed=1), draw(TOKENS, WIDTH, seed=2) if summed else None
    expected = batch.by_torch().norm(1, x, base, residual)
    given = None if residual is None else residual.to(dtype)
    check(batch.by_triton(dtype).norm(1, x.to(dtype), base, given), expected)


def test_gates_are_recorded():
    for size in (5, 70):
        cut = Cutter()
        batch = Batch([_bottleneck(cut, size, gate=_gate(cut))])
        x = draw(TOKENS, WIDTH, seed=1)
        recorded: list[dict[int, torch.Tensor]] = []
        for ops in (batch.by_torch(), batch.by_triton(torch.float32)):
            ops.act("ffn", 0, x.clone() if not recorded else x, x)
            groups: list[AdapterGroup] = [getattr(one, "group", one) for one in ops._groups]  # type: ignore[attr-defined]
            recorded.append(torch.cat([one.gates["one"][0] for one in groups if one.gates]))
        torch.testing.assert_close(recorded[1], recorded[0], atol=1e-6, rtol=0)


def test_programs_of_two_depths_are_refused():
    """By the places of one depth the rows of the other would read the ops of another site."""
    bias = AddedBias("ffn", 0, Cutter()(WIDTH))
    groups = [AdapterGroup(1, Program([bias], depth), draw(MAX_ELEMENTS)) for depth in (1, 2)]
    with pytest.raises(AssertionError, match=r"have depths \[1, 2\]"):
        TRITON[torch.float32].group(groups, [3, 4])
