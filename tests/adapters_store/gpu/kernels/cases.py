"""Batches of rows of different lengths, and what every kernel should compute from them."""

from collections.abc import Sequence

import torch
from peltier_adapters.gpu.backend import TritonBackend
from peltier_adapters.ops.backend import AdapterGroup, GroupedOps
from peltier_adapters.ops.op import Op, Program
from peltier_adapters.ops.torch import TORCH
from torch import Tensor

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.bfloat16)
TRITON = {dtype: TritonBackend(CPU, dtype) for dtype in DTYPES}
# A row longer than a Triton program takes, rows of one token, a row without an adapter, and two rows that share one.
LENGTHS, WIDTH = (3, 35, 1, 5, 17), 24
TOKENS, MAX_ELEMENTS = sum(LENGTHS), 8192
# The largest difference over the largest value: sums of some hundred terms in float32, or some roundings to eight bits.
TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 2e-2}


class Cutter:
    """Cuts the tensors of ops out of a template of adapters' weights."""

    def __init__(self) -> None:
        self._free = torch.empty(MAX_ELEMENTS, device="meta")

    def __call__(self, *shape: int) -> Tensor:
        size = torch.Size(shape).numel()
        own, self._free = self._free[:size], self._free[size:]
        return own.view(shape)


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Float32 numbers that a bfloat16 holds exactly."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16().float()


class Batch:
    """Rows of two programs, of which the first has two adapters, and a row without one."""

    def __init__(self, ops: Sequence[Op], others: Sequence[Op] = (), depth: int = 1) -> None:
        self._programs = Program(ops, depth), Program(others, depth)
        self._flats = [draw(MAX_ELEMENTS, seed=seed) / 4 for seed in range(3)]

    def by_torch(self) -> GroupedOps:
        """The reference, in float32."""
        return TORCH.group(_groups(self._programs, self._flats), LENGTHS)

    def by_triton(self, dtype: torch.dtype) -> GroupedOps:
        """With weights as a server keeps them."""
        first, second = (TRITON[dtype].prepare(program, MAX_ELEMENTS) for program in self._programs)
        ready = [one.weights(flat) for one, flat in zip((first, first, second), self._flats, strict=True)]
        return TRITON[dtype].group(_groups((first.program, second.program), ready), LENGTHS)


def _groups(programs: tuple[Program, Program], flats: Sequence[Tensor]) -> list[AdapterGroup]:
    first, second = programs
    return [
        AdapterGroup(2, first, flats[0], {}), AdapterGroup(1), AdapterGroup(1, first, flats[1], {}),
        AdapterGroup(1, second, flats[2], {}),
    ]  # fmt: skip


def check(found: Tensor, expected: Tensor) -> None:
    """Equal but for rounding."""
    assert found.shape == expected.shape
    difference = (found.float() - expected).abs().max() / expected.abs().max()
    assert difference <= TOLERANCES[found.dtype], f"differs by {difference:.1e}"
