"""Scores label strings exactly on T5, with one teacher-forced pass for all labels of a row."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Packed
from peltier_backbone.targets import Targets
from torch import Tensor

from peltier_adapters.artifact.label_tree import LabelTree
from peltier_adapters.batch.adaptation import BatchAdaptation
from peltier_adapters.batch.row import Row, adapt_tokens


def score(backbone: Backbone, packed: Packed, rows: Sequence[Row], adaptation: BatchAdaptation) -> list[Tensor]:
    """The log-likelihoods [labels] of each row's label strings, in float32 on the CPU. `rows` are in `Row.order`, and
    `packed` has their tokens."""
    model = backbone.t5
    states = model.encode(packed, adaptation)
    memory = model.project_kv(packed, states, adaptation)
    trees = [_tree(row) for row in rows]
    targets = pack_targets(trees, backbone.device)
    decoder = adapt_tokens(backbone, rows, [len(tree.ids) for tree in trees])
    hidden = model.decode(targets, memory, decoder)
    logits = model.logits(hidden, decoder)
    starts = [0, *accumulate(len(tree.ids) for tree in trees)]
    return [tree.score(logits[start : start + len(tree.ids)]).cpu() for tree, start in zip(trees, starts, strict=False)]


def pack_targets(trees: Sequence[LabelTree], device: torch.device) -> Targets:
    """The decoder inputs for one tree per row."""
    return Targets.create([tree.ids for tree in trees], [tree.parents for tree in trees], device)


def _tree(row: Row) -> LabelTree:
    tree = row.scored
    assert tree is not None, "rows without label strings are generated, not scored"
    return tree
