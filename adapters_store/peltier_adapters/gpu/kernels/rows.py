"""The kernels' tables of the rows of a batch and of the programs of their adapters.

A program is a vector of int64 words on the device (`gpu/program_table.py` writes it): where its ops, norms and prefixes
begin, the number of the first op of each place, then their records. A weight has two words: the address of a tensor
that all adapters share or 0, and the element of an adapter's own weights at which it begins or -1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

# Matrix units multiply no fewer rows. Larger blocks spill registers.
_MIN_BLOCK_ROWS = 16
_MAX_BLOCK_ROWS = {torch.float32: 16}

# The first words of a program: the words at which its ops, norms and prefixes begin, then its places.
OPS, NORMS, PREFIXES, PLACES = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)

# The words of an op.
COLUMN = tl.constexpr(0)  # the first column of y that it changes
BEFORE = tl.constexpr(1)  # columns of its input
AFTER = tl.constexpr(2)  # columns that it changes
READS = tl.constexpr(3)  # a code of `enum reads` in program.h
GAIN = tl.constexpr(4)  # the bits of a float32
GATE_OUTPUTS = tl.constexpr(5)  # 0 without a gate, 1 or 2
GATE_COLUMN = tl.constexpr(6)
GATE_WEIGHT = tl.constexpr(7)
GATE_BIAS = tl.constexpr(9)
NORM_WEIGHT = tl.constexpr(11)
NORM_BIAS = tl.constexpr(13)
EPS = tl.constexpr(15)  # the bits of a float32
CENTERED = tl.constexpr(16)
NUM_STEPS = tl.constexpr(17)
WIDE = tl.constexpr(18)  # 1 if it runs step by step, 2 if it multiplies y by the bias of its last step
SCALED = tl.constexpr(2)
FIRST_STEP = tl.constexpr(19)  # the step towards the narrow middle; four steps begin here
NUM_OP_WORDS = tl.constexpr(19 + 4 * 9)

# The words of a step.
WEIGHT = tl.constexpr(0)
STRIDE = tl.constexpr(2)
BIAS = tl.constexpr(3)
FOLD = tl.constexpr(5)
INNER = tl.constexpr(6)
OUTER = tl.constexpr(7)
ACTIVATION = tl.constexpr(8)
NUM_STEP_WORDS = tl.constexpr(9)

# The words of a prefix.
KEYS = tl.constexpr(0)
VALUES = tl.constexpr(2)
LENGTH = tl.constexpr(4)
HEAD_STRIDE = tl.constexpr(5)
KEY_STRIDE = tl.constexpr(6)
GATE = tl.constexpr(7)  # the number of the op that computes its gate at its place, or -1
NUM_PREFIX_WORDS = tl.constexpr(8)

# The words of a norm: its weight and its bias.
NUM_NORM_WORDS = tl.constexpr(4)


@dataclass(frozen=True)
class Rows:
    """Row r of a batch has the tokens `starts[r]..starts[r + 1]`, the weights at address `bases[r]` and the program at
    address `programs[r]`, or 0 without an adapter. All are int64 on the device; no row has more than `longest` tokens.
    They are inputs of the kernels, so that a captured CUDA graph can be replayed with others."""

    starts: Tensor
    bases: Tensor
    programs: Tensor
    longest: int

    def __len__(self) -> int:
        return len(self.bases)


def block_size(longest: int, dtype: torch.dtype) -> int:
    """The number of tokens that one Triton program computes, for rows of at most `longest` tokens."""
    return int(min(max(triton.next_power_of_2(longest), _MIN_BLOCK_ROWS), _MAX_BLOCK_ROWS.get(dtype, 32)))


def strides(*tensors: Tensor | None) -> Sequence[int]:
    """The elements between the rows of each tensor; the kernels require that each row is contiguous."""
    for one in tensors:
        assert one is None or one.shape[-1] == 1 or one.stride(-1) == 1, f"a row of {one} is not contiguous"
    return [0 if one is None else one.stride(0) for one in tensors]


@triton.jit
def locate(starts, block: tl.constexpr):
    """The first token of this Triton program, and the first token of its row and its end."""
    row = tl.program_id(1)
    begin = tl.load(starts + row)
    return begin + tl.program_id(0) * block, begin, tl.load(starts + row + 1)


@triton.jit
def find_program(programs, row):
    """A pointer to the program of a row, and whether the row has one."""
    address = tl.load(programs + row)
    return address.to(tl.pointer_type(tl.int64)), address != 0


@triton.jit
def find(words, base, dtype: tl.constexpr):
    """A pointer to a weight of `dtype`, and whether there is one."""
    fixed, place = tl.load(words), tl.load(words + 1)
    address = tl.where(fixed != 0, fixed, base + place * (dtype.primitive_bitwidth // 8))
    return address.to(tl.pointer_type(dtype)), (fixed != 0) | (place >= 0)


@triton.jit
def read_float(word):
    """A word that has the bits of a float32."""
    return tl.load(word).to(tl.int32).to(tl.float32, bitcast=True)
