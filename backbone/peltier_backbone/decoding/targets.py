"""The given tokens of teacher forcing: rows of token trees, back to back."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

# The tree of one row: the parent of each node, -1 for a root. Parents come before their children.
Parents = tuple[int, ...]


@dataclass(frozen=True)
class Targets:
    """A batch of decoder inputs; `ids` is [nodes]. A node attends to itself and its ancestors, so a tree scores many
    strings of one row in one pass and shares their common beginnings. Without `parents` each row is one string.
    """

    ids: Tensor
    lengths: tuple[int, ...]
    starts: tuple[int, ...]
    parents: tuple[Parents, ...] | None

    @classmethod
    def create(
        cls, ids: Sequence[Sequence[int]], parents: Sequence[Sequence[int]] | None, device: torch.device
    ) -> "Targets":
        """Lay rows of token ids (the decoder's start token first) back to back."""
        lengths = tuple(len(row) for row in ids)
        return cls(
            ids=torch.tensor([token for row in ids for token in row], device=device),
            lengths=lengths,
            starts=tuple(accumulate(lengths, initial=0)),
            parents=None if parents is None else tuple(tuple(row) for row in parents),
        )


def ancestry(parents: Parents) -> Tensor:
    """Which nodes each node attends to, [nodes, nodes]: itself and its ancestors."""
    num = len(parents)
    above = torch.tensor([*(parent % (num + 1) for parent in parents), num])  # the parent of a root is `num`
    seen = torch.zeros(num, num + 1, dtype=torch.bool)
    nodes = torch.arange(num)
    current = nodes
    while not torch.all(current == num):
        seen[nodes, current] = True
        current = above[current]
    return seen[:, :num]
