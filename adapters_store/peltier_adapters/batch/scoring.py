"""Scores label strings exactly on T5, with one teacher-forced pass for all labels of a row."""

from collections.abc import Sequence
from itertools import accumulate, chain

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
    if logits.device.type != "cpu":
        return _score_together(trees, starts, logits)
    return [tree.score(logits[start : start + len(tree.ids)]) for tree, start in zip(trees, starts, strict=False)]


def _score_together(trees: Sequence[LabelTree], starts: Sequence[int], logits: Tensor) -> list[Tensor]:
    """What `LabelTree.score` returns for each tree, with one copy to the device and one back."""
    step_starts = accumulate((len(tree.nodes) for tree in trees), initial=0)
    columns = (
        [start + node for tree, start in zip(trees, starts, strict=False) for node in tree.nodes],
        list(chain.from_iterable(tree.tokens for tree in trees)),
        [start + step for tree, start in zip(trees, step_starts, strict=False) for step in tree.paths],
        list(chain.from_iterable(tree.lengths for tree in trees)),
    )
    numbers = torch.tensor(list(chain.from_iterable(columns)), pin_memory=logits.device.type == "cuda")
    there = numbers.to(logits.device, non_blocking=True)
    nodes, tokens, paths, lengths = torch.split(there, [len(column) for column in columns])
    steps = logits.float().log_softmax(-1)[nodes, tokens]
    sums = torch.segment_reduce(steps[paths], "sum", lengths=lengths, axis=0, unsafe=True).cpu()
    found = zip(trees, torch.split(sums, [tree.num_labels for tree in trees]), strict=True)
    return [own / torch.tensor(tree.lengths) if tree.means else own for tree, own in found]


def pack_targets(trees: Sequence[LabelTree], device: torch.device) -> Targets:
    """The decoder inputs for one tree per row."""
    return Targets.create([tree.ids for tree in trees], [tree.parents for tree in trees], device)


def _tree(row: Row) -> LabelTree:
    tree = row.scored
    assert tree is not None, "rows without label strings are generated, not scored"
    return tree
