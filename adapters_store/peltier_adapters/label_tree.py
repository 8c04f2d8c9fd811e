"""The label strings of a task as one tree of tokens, so that a T5 scores them all in one pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.task_spec import TaskSpec


@dataclass(frozen=True)
class LabelTree:
    """Decoder inputs: node 0 is the start token, each other node a token after its parent; common beginnings are one.

    `edges` are the (node, next token) steps that some label takes, its end among them; `paths` gives each label's edges
    and `means` whether a label's score is the mean over its steps (a text) or their sum (a label string).
    """

    ids: tuple[int, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    paths: tuple[tuple[int, ...], ...]
    means: bool = False

    @property
    def num_labels(self) -> int:
        """How many strings are scored."""
        return len(self.paths)

    def score(self, logits: Tensor) -> Tensor:
        """Log-likelihood of each label, [labels] in float32, from the next-token logits [nodes, vocab]."""
        nodes, tokens = torch.tensor(self.edges, device=logits.device).unbind(-1)
        steps = logits.float().log_softmax(-1)[nodes, tokens]
        reduce = "mean" if self.means else "sum"
        lengths = torch.tensor([len(path) for path in self.paths], device=logits.device)
        flat = torch.tensor([edge for path in self.paths for edge in path], device=logits.device)
        return torch.segment_reduce(steps[flat], reduce, lengths=lengths, axis=0, unsafe=True)


def create_tree(start: int, end: int, labels: Sequence[Sequence[int]], *, means: bool = False) -> LabelTree:
    """The tree of `labels` (token ids without the end) under the decoder's start token."""
    children: dict[tuple[int, int], int] = {}
    edges: dict[tuple[int, int], int] = {}
    ids, parents, depths, paths = [start], [-1], [0], []
    for label in labels:
        node, path = 0, []
        for token in label:
            path.append(edges.setdefault((node, token), len(edges)))
            if (node, token) not in children:
                children[node, token] = len(ids)
                ids.append(token)
                parents.append(node)
                depths.append(depths[node] + 1)
            node = children[node, token]
        path.append(edges.setdefault((node, end), len(edges)))
        paths.append(tuple(path))
    return LabelTree(tuple(ids), tuple(parents), tuple(depths), tuple(edges), tuple(paths), means)


def target_problems(task: TaskSpec, backbone: Backbone) -> list[str]:
    """Why the label strings of a task cannot be told apart in this backbone's tokens; empty if they can."""
    problems: list[str] = []
    first: dict[tuple[int, ...], str] = {}
    for text in task.targets:
        ids = backbone.tokenizer.ids(text)
        if not ids:
            problems.append(f"task target {text!r} tokenizes to nothing")
        elif first.setdefault(ids, text) != text:
            problems.append(f"task targets {first[ids]!r} and {text!r} are the same tokens")
    return problems


def grow_tree(task: TaskSpec, backbone: Backbone) -> LabelTree | None:
    """The tree of a closed task's label strings; None for other tasks."""
    if not task.targets:
        return None
    labels = [backbone.tokenizer.ids(text) for text in task.targets]
    return create_tree(backbone.t5.config.start_token_id, backbone.t5.config.eos_token_id, labels)


def text_tree(text: str, backbone: Backbone) -> LabelTree:
    """A single text, scored by its mean log-probability per token."""
    config = backbone.t5.config
    return create_tree(config.start_token_id, config.eos_token_id, [backbone.tokenizer.ids(text)], means=True)
