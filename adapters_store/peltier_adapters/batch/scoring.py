"""Scores label strings exactly on T5, with one teacher-forced pass for all labels of a row."""

from collections.abc import Sequence
from itertools import accumulate, chain

import torch
from peltier_backbone.decoding.targets import Targets
from torch import Tensor

from peltier_adapters.artifact.label_tree import LabelTree
from peltier_adapters.batch.indices import Indices, Values
from peltier_adapters.batch.row import Row


def score_trees(trees: Sequence[LabelTree], logits: Tensor) -> list[Tensor]:
    """The log-likelihoods [labels] of the label strings of each tree, in float32 on the CPU, from the next-token logits
    [nodes, vocab] of all nodes."""
    if logits.device.type != "cpu":
        return sum_labels(trees, logits, Indices.of(list_steps(trees), logits.device))
    pieces = torch.split(logits, [len(tree.ids) for tree in trees])
    return [tree.score(own) for tree, own in zip(trees, pieces, strict=True)]


def list_steps(trees: Sequence[LabelTree]) -> dict[str, Values]:
    """The steps of all labels of all trees, whose nodes are numbered one tree after the other."""
    node_starts = accumulate((len(tree.ids) for tree in trees), initial=0)
    step_starts = accumulate((len(tree.nodes) for tree in trees), initial=0)
    return {
        "step_nodes": [start + node for tree, start in zip(trees, node_starts, strict=False) for node in tree.nodes],
        "step_tokens": list(chain.from_iterable(tree.tokens for tree in trees)),
        "paths": [start + step for tree, start in zip(trees, step_starts, strict=False) for step in tree.paths],
        "path_lengths": list(chain.from_iterable(tree.lengths for tree in trees)),
    }


def sum_labels(trees: Sequence[LabelTree], logits: Tensor, steps: Indices) -> list[Tensor]:
    """What `LabelTree.score` returns for each tree, with one copy from the device; `steps` has what `list_steps`
    returns."""
    log_probs = logits.float().log_softmax(-1)[steps["step_nodes"], steps["step_tokens"]]
    lengths = steps["path_lengths"]
    sums = torch.segment_reduce(log_probs[steps["paths"]], "sum", lengths=lengths, axis=0, unsafe=True).cpu()
    found = zip(trees, torch.split(sums, [tree.num_labels for tree in trees]), strict=True)
    return [own / torch.tensor(tree.lengths) if tree.means else own for tree, own in found]


def pack_targets(trees: Sequence[LabelTree], device: torch.device) -> Targets:
    """The decoder inputs for one tree per row."""
    return Targets.create([tree.ids for tree in trees], [tree.parents for tree in trees], device)


def list_trees(rows: Sequence[Row]) -> list[LabelTree]:
    """The tree of each row."""
    trees = [tree for row in rows if (tree := row.scored) is not None]
    assert len(trees) == len(rows), "rows without label strings are generated, not scored"
    return trees
