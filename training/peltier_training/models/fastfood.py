"""The random projection of intrinsic SAID, from a small vector to a whole tensor in n log n (Li et al. 2018, Aghajanyan
et al. 2020; docs/methods/baselines.md#intrinsic-said)."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class _Hadamard(torch.autograd.Function):
    """The unnormalised Walsh-Hadamard transform of a vector whose length is a power of two.

    Its gradient is divided by the root of the length, as in the paper's code: learning rates depend on it
    (docs/methods/baselines.md#intrinsic-said).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _transform(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        length = len(gradients[0])
        return _transform(gradients[0]) / math.sqrt(length)


_BITS = 6  # of the index that one matrix product transforms, for few passes over memory


def _transform(x: Tensor) -> Tensor:
    """H is a Kronecker product of small matrices. Each step transforms the leading digit of the index and rotates it to
    the end."""
    bits = len(x).bit_length() - 1
    while bits > 0:
        digit = min(bits, _BITS)
        x = (x.view(1 << digit, -1).T @ _matrix(digit).to(x)).reshape(-1)
        bits -= digit
    return x


def _matrix(bits: int) -> Tensor:
    matrix = torch.ones(1, 1)
    for _ in range(bits):
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), matrix)
    return matrix


def hadamard(x: Tensor) -> Tensor:
    """H x for x [2 ** k]."""
    result: Tensor = _Hadamard.apply(x)  # type: ignore[no-untyped-call]
    return result


class Fastfood(nn.Module):
    """`size` numbers from a vector: H G P H B over the next power of two, scaled to keep the vector's length. A longer
    vector is truncated to that power, so a small tensor depends on the first coordinates only."""

    signs: Tensor
    order: Tensor
    gauss: Tensor

    def __init__(self, size: int, generator: torch.Generator) -> None:
        super().__init__()
        self._size = size
        length = 1 << (size - 1).bit_length()
        signs = torch.randint(0, 2, (length,), generator=generator) * 2 - 1
        gauss = torch.randn(length, generator=generator)
        self.register_buffer("signs", signs.to(torch.int8))
        self.register_buffer("order", torch.randperm(length, generator=generator).to(torch.int32))
        self.register_buffer("gauss", gauss)
        self._divisor = float((size * gauss.double().square().sum()).sqrt())

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(x, (0, len(self.signs) - len(x)))
        mixed = hadamard(padded * self.signs).index_select(0, self.order)
        return hadamard(mixed * self.gauss)[: self._size] / self._divisor
