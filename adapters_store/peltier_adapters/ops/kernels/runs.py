"""The kernels' tables of which tokens use which slot."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
import triton
import triton.language as tl
from torch import Tensor

# Matrix units multiply no fewer rows. Larger blocks spill registers.
_MIN_BLOCK_ROWS = 16
_MAX_BLOCK_ROWS = {torch.float32: 16}


@dataclass(frozen=True)
class Runs:
    """Neighbouring runs of tokens: run r is tokens `starts[r]..starts[r + 1]` and uses slot `slots[r]`, int32 on the
    device; no run is longer than `longest` tokens. A run may be empty, and slots may repeat. The tokens of a negative
    slot have no adapter.

    Starts and slots are inputs of the kernels, so that a captured CUDA graph can be replayed with others.
    """

    starts: Tensor
    slots: Tensor
    longest: int


def create_runs(lengths: Sequence[int], slots: Sequence[int], device: torch.device) -> Runs:
    """Runs of `lengths` tokens back to back, one slot each."""
    starts = torch.tensor([*accumulate(lengths, initial=0)], dtype=torch.int32, device=device)
    return Runs(starts, torch.tensor(slots, dtype=torch.int32, device=device), max(lengths))


def block_size(longest: int, dtype: torch.dtype) -> int:
    """The number of rows that one Triton program computes, for runs of at most `longest` rows."""
    return int(min(max(triton.next_power_of_2(longest), _MIN_BLOCK_ROWS), _MAX_BLOCK_ROWS.get(dtype, 64)))


@triton.jit
def locate(starts, slots, fold: tl.constexpr, block: tl.constexpr):
    """The first row of this Triton program, the end of its run, and the run's slot; a token is `fold` rows."""
    run = tl.program_id(1)
    first = tl.load(starts + run) * fold + tl.program_id(0) * block
    last = tl.load(starts + run + 1) * fold
    return first, last, tl.load(slots + run).to(tl.int64)
