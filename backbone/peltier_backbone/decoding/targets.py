"""The given tokens of teacher forcing, rows of token trees back to back, and what they attend to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from peltier_backbone.attention.ragged_attention import RaggedAttention
from peltier_backbone.attention.relative import RelativeBias, RowBias
from peltier_backbone.attention.view import Attended
from peltier_backbone.decoding.cache import EncoderKV

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


class TreeView:
    """Each node attends to itself and its ancestors, at distances along the tree; row r attends to memory row r."""

    def __init__(self, targets: Targets, memory: EncoderKV, bias: RelativeBias, num_heads: int) -> None:
        assert len(targets.lengths) == len(memory.lengths), "one memory a row"
        lengths = targets.lengths
        self._memory, self._size, self._bias = memory, memory.key_values[0].shape[-1] // 2, bias
        self._own = RaggedAttention(num_heads, lengths, lengths, bias.line, find_biases(targets, bias))
        self._cross = RaggedAttention(num_heads, lengths, memory.lengths, bias.line)

    def attend_self(self, layer: int, qkv: Tensor, *, with_logsumexp: bool) -> Attended:
        query, key_value = qkv[:, : self._size], qkv[:, self._size :]
        first_head = self._bias.first_head(layer)
        return self._own.attend(query, key_value, with_logsumexp=with_logsumexp, first_head=first_head)

    def attend_cross(self, layer: int, query: Tensor, *, with_logsumexp: bool) -> Attended:
        return self._cross.attend(query, self._memory.key_values[layer], with_logsumexp=with_logsumexp)


def find_biases(targets: Targets, bias: RelativeBias) -> RowBias | list[Tensor]:
    """The self-attention bias of each row, of trees [heads, nodes, nodes]; equal trees share one."""
    if targets.parents is None:
        return RowBias(bias, max(targets.lengths))
    distinct = {parents: _tree_bias(ancestry(parents), bias) for parents in dict.fromkeys(targets.parents)}
    return [distinct[parents] for parents in targets.parents]


def _tree_bias(seen: Tensor, bias: RelativeBias) -> Tensor:
    seen = seen.to(bias.line.device)
    depths = seen.sum(-1)
    table = bias.between(depths[None, :] - depths[:, None]).permute(2, 0, 1)
    return table.masked_fill(~seen, -math.inf)
