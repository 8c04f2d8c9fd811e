"""Compares a backend on a GPU with torch before the first request."""

import math
from collections.abc import Callable, Sequence

import torch
from peltier_backbone.linear.norm import LayerNorm
from torch import Tensor

from peltier_adapters.ops.backend import AdapterGroup, Backend, GroupedOps
from peltier_adapters.ops.op import AddedBias, FusedMatmul, Gate, MatmulStep, Normed, NormWeights, Op, Program, Scaled
from peltier_adapters.ops.torch import TORCH

# Two adapters, and a row without one between them. Kernels are compiled for short rows and for others, and like every
# backbone's the width is a multiple of 16.
_ROWS, _LENGTHS, _WIDTH = (2, 1, 1), ((5, 3, 4, 1), (18, 3, 4, 1)), 48
_MAX_ELEMENTS = 8192
# The largest difference over the largest value: sums of some tens of terms, or a few roundings to eight bits.
_TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 3e-2}

# An adapter of a sub-layer changes what it reads. A map's output, which alone has scales, is not its input.
_SITES = ("ffn", "output")

# Returns a tensor of this shape that stands for those of all adapters.
_Cut = Callable[..., Tensor]


@torch.inference_mode()
def check(backend: Backend, device: torch.device, dtype: torch.dtype) -> None:
    """Check every kind of op in `dtype` at odd sizes. Raises a `RuntimeError` that names what is wrong."""
    for kind in _KINDS:
        found, expected = _compute(backend, kind, device, dtype), _compute(TORCH, kind, device, torch.float32)
        # The comparison is false for NaN too.
        if not (found - expected).abs().max() <= _TOLERANCES[dtype] * expected.abs().max():
            raise RuntimeError(f"{backend.name} computes {kind} wrongly in {dtype}")


def _compute(backend: Backend, kind: str, device: torch.device, dtype: torch.dtype) -> Tensor:
    """What the ops add to their input and to another tensor, and norms, in float32."""
    ones = torch.ones(_WIDTH, device=device, dtype=dtype)
    base = LayerNorm(ones, torch.zeros_like(ones), 1e-5)
    program = Program(_KINDS[kind](_cutter(), base), 1)
    kept = backend.prepare(program, _MAX_ELEMENTS)
    first, last = (kept.weights(_draw(_MAX_ELEMENTS, seed=seed).to(device) / 4) for seed in (1, 2))
    groups = (
        AdapterGroup(_ROWS[0], kept.program, first), AdapterGroup(_ROWS[1]), AdapterGroup(_ROWS[2], kept.program, last)
    )  # fmt: skip
    return torch.cat([_apply(backend.group(groups, lengths), lengths, base) for lengths in _LENGTHS]).float()


def _apply(ops: GroupedOps, lengths: Sequence[int], base: LayerNorm) -> Tensor:
    like = base.weight
    x, residual = (_draw(sum(lengths), len(like), seed=seed).to(like.device, like.dtype) for seed in (3, 4))
    y = x.clone()
    acted = (ops.act("ffn", 0, y, y, residual), *(ops.act(site, 0, x.clone(), x, residual) for site in _SITES))
    # A norm of a sum may overwrite its input.
    return torch.cat((*acted, ops.norm(0, x.clone(), base, residual), ops.norm(0, x, base)))


def _draw(*shape: int, seed: int) -> Tensor:
    # Rounded, so that all dtypes compute from the same values.
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16().float()


def _cutter() -> _Cut:
    free = torch.empty(_MAX_ELEMENTS, device="meta")

    def cut(*shape: int) -> Tensor:
        nonlocal free
        size = math.prod(shape)
        own, free = free[:size], free[size:]
        return own.view(shape)

    return cut


def _bottleneck(cut: _Cut, base: LayerNorm, size: int = 5, site: str = "ffn") -> list[Op]:
    down = MatmulStep(cut(_WIDTH, size), cut(size), activation="gelu")
    steps = down, MatmulStep(cut(size, _WIDTH), cut(_WIDTH))
    return [FusedMatmul(site, 0, steps, reads="sum", gate=Gate("gate", 0, cut(_WIDTH), cut()))]


def _wide_bottleneck(cut: _Cut, base: LayerNorm) -> list[Op]:
    return _bottleneck(cut, base, size=70)


def _lora(cut: _Cut, base: LayerNorm) -> list[Op]:
    steps, gate = (MatmulStep(cut(_WIDTH, 3)), MatmulStep(cut(3, 8))), Gate("gate", 0, cut(_WIDTH, 2), cut(2), column=1)
    return [FusedMatmul("ffn", 0, steps, column=8, gate=gate)]


def _compacter(cut: _Cut, base: LayerNorm) -> list[Op]:
    n, size = 4, 5
    part = _WIDTH // n
    steps = (
        MatmulStep(cut(part, n), fold=n),
        MatmulStep(cut(n * n, size), cut(size), activation="gelu_new"),
        MatmulStep(cut(size, 2 * n * n), cut(2 * n * n)),
        MatmulStep(cut(2 * n, part), fold=n),
    )
    return [FusedMatmul("ffn", 0, steps, reads=Normed(0, base), gain=0.5), NormWeights(0, cut(_WIDTH), cut(_WIDTH))]


def _bias(cut: _Cut, base: LayerNorm) -> list[Op]:
    return [AddedBias("ffn", 0, cut(5), base.weight[:5].float(), column=3)]


def _scale(cut: _Cut, base: LayerNorm) -> list[Op]:
    return [*_bottleneck(cut, base, site="output"), Scaled("output", 0, cut(_WIDTH))]


_KINDS: dict[str, Callable[[_Cut, LayerNorm], list[Op]]] = {
    "a bottleneck": _bottleneck,
    "an aligned bottleneck": lambda cut, base: _bottleneck(cut, base, size=8),
    "a wide bottleneck": _wide_bottleneck,
    "LoRA": _lora,
    "a Compacter": _compacter,
    "a bias": _bias,
    "a scale before a product": _scale,
}
