"""T5's relative position bias: one number for each head and bucket of distances (Raffel et al. 2020, section 2.1)."""

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F


def buckets(relative: Tensor, num_buckets: int, max_distance: int, *, bidirectional: bool) -> Tensor:
    """The bucket of each relative position (key - query). A near position has its own; far ones share logarithmic
    buckets."""
    if bidirectional:
        num_buckets //= 2
        first = (relative > 0).long() * num_buckets
        distance = relative.abs()
    else:
        first = torch.zeros_like(relative)
        distance = (-relative).clamp(min=0)
    exact = num_buckets // 2
    # The order of operations is that of transformers: another order may round to another bucket at a bucket's edge.
    share = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = exact + (share * (num_buckets - exact)).long()
    return first + torch.where(distance < exact, distance, far.clamp(max=num_buckets - 1))


@dataclass(frozen=True)
class RelativeBias:
    """The bias of each relative position, `line` [positions, heads], which begins at the relative position `first`. If
    each block has biases of its own (umT5), heads are those of all blocks, of which a block has `num_heads`.

    Positions beyond either end of the line have the bias of that end. A decoder's line ends in -inf at +1: no token
    attends to a later one.
    """

    line: Tensor
    first: int
    num_heads: int
    _lines: dict[tuple[int, int], Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def first_head(self, layer: int) -> int:
        """The first head of block `layer`."""
        return layer * self.num_heads if self.by_block else 0

    @property
    def by_block(self) -> bool:
        """Whether each block has biases of its own."""
        return self.line.shape[1] > self.num_heads

    def between(self, relative: Tensor) -> Tensor:
        """The biases [..., heads] of relative positions [...] (key - query)."""
        last = self.first + len(self.line) - 1
        return F.embedding(relative.clamp(self.first, last) - self.first, self.line)

    def line_before(self, width: int) -> Tensor:
        """The biases of the last of `width` tokens to all of them, [heads, width] in float32, contiguous."""
        return self._between(1 - width, 0)

    def line_around(self, width: int) -> Tensor:
        """The biases between tokens that are less than `width` apart, and some more, [heads, positions] in float32,
        contiguous, with the relative position 0 in the middle. There are few such lines."""
        reach = 1 << (width - 1).bit_length()
        return self._between(-reach, reach)

    @property
    def columns(self) -> Tensor:
        """The line as [heads, positions] in float32, contiguous."""
        return self._between(self.first, self.first + len(self.line) - 1)

    def _between(self, first: int, last: int) -> Tensor:
        """The biases of the relative positions `first..last`, [heads, positions] in float32, contiguous."""
        if (first, last) not in self._lines:
            places = torch.arange(first, last + 1, device=self.line.device)
            self._lines[first, last] = self.between(places).t().float().contiguous()
        return self._lines[first, last]

    def square(self, width: int) -> Tensor:
        """The biases between `width` consecutive tokens, [heads, width (queries), width (keys)]."""
        reach = torch.arange(1 - width, width, device=self.line.device)
        # Row k of the unfolded line begins at the relative position k + 1 - width: the last query comes first.
        return self.between(reach).t().unfold(1, width, 1).flip(1)


def create_bias(table: Tensor, num_heads: int, max_distance: int, *, bidirectional: bool) -> RelativeBias:
    """The bias by relative position, from a checkpoint's table [buckets, heads]; a block has `num_heads` of them."""
    relative = torch.arange(-max_distance, (max_distance if bidirectional else 0) + 1)
    bucket = buckets(relative, len(table), max_distance, bidirectional=bidirectional)
    line = table.index_select(0, bucket.to(table.device))
    line = line if bidirectional else F.pad(line, (0, 0, 0, 1), value=-math.inf)
    return RelativeBias(line, -max_distance, num_heads)


@dataclass(frozen=True)
class RowBias:
    """The biases of rows of up to `width` consecutive tokens each."""

    relative: RelativeBias
    width: int

    @cached_property
    def square(self) -> Tensor:
        """See `RelativeBias.square`."""
        return self.relative.square(self.width)
