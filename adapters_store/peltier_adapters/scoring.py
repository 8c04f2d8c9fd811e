"""Exact scoring of label strings on T5: one teacher-forced pass for all labels of a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Packed
from peltier_backbone.targets import Targets
from torch import Tensor

from peltier_adapters.label_tree import LabelTree
from peltier_adapters.mixture import Mixture
from peltier_adapters.row import Row, create_slices

# One row's tree may have thousands of nodes: logits are [nodes, vocab].
_MAX_NODES = 2048


@dataclass(frozen=True)
class SingleTokens:
    """A layout in which every token is a row of its own: in the decoder gates must not see later tokens."""

    num: int

    @property
    def lengths(self) -> tuple[int, ...]:
        return (1,) * self.num

    @property
    def starts(self) -> tuple[int, ...]:
        return tuple(range(self.num + 1))


def score(backbone: Backbone, packed: Packed, rows: Sequence[Row], mixture: Mixture) -> list[Tensor]:
    """Log-likelihoods [labels] of each row's label strings, in float32 on the CPU; the rows are sorted and packed."""
    model = backbone.t5
    states = model.encode(packed, mixture)
    memory = model.remember(packed, states, mixture)
    trees = [_tree(row) for row in rows]
    targets = plant(trees, backbone.device)
    decoder = decoder_mixture(backbone, rows, [len(tree.ids) for tree in trees])
    hidden = model.decode(targets, memory, decoder)
    logits = model.logits(hidden, decoder)
    starts = [0, *accumulate(len(tree.ids) for tree in trees)]
    return [tree.score(logits[start : start + len(tree.ids)]).cpu() for tree, start in zip(trees, starts, strict=False)]


def decoder_mixture(backbone: Backbone, rows: Sequence[Row], num_tokens: Sequence[int]) -> Mixture:
    """The adaptation of decoder tokens, `num_tokens` of each row."""
    tokens = [row for row, num in zip(rows, num_tokens, strict=True) for _ in range(num)]
    return Mixture(backbone, list(create_slices(backbone, SingleTokens(len(tokens)), tokens)))


def plant(trees: Sequence[LabelTree], device: torch.device) -> Targets:
    """One tree a row as decoder inputs."""
    return Targets.create([tree.ids for tree in trees], [tree.parents for tree in trees], device)


def _tree(row: Row) -> LabelTree:
    tree = row.scored
    assert tree is not None, "rows without label strings are generated, not scored"
    return tree
