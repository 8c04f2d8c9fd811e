"""The label strings of a task as one tree of tokens, so that a T5 scores all of them in one pass."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.spec.tasks import TaskSpec


@dataclass(frozen=True, eq=False)
class LabelTree:
    """Decoder inputs. Node 0 is the start token; each other node is a token that follows its parent. Labels share the
    nodes of a common prefix.

    Step n leads from `nodes[n]` to `tokens[n]`; the end token of a label is a step too. `paths` are the steps of all
    labels, concatenated; `lengths` has the number of each label's steps. With `means`, a label's score is the mean over
    its steps (for a text), otherwise their sum (for a label). The arrays have 32-bit integers, to keep large trees
    small.
    """

    ids: "array[int]"
    parents: "array[int]"
    nodes: "array[int]"
    tokens: "array[int]"
    paths: "array[int]"
    lengths: "array[int]"
    means: bool = False

    @property
    def num_labels(self) -> int:
        """The number of scored strings."""
        return len(self.lengths)

    def score(self, logits: Tensor) -> Tensor:
        """Log-likelihood of each label, [labels] in float32, from the next-token logits [nodes, vocab]."""
        nodes, tokens, paths, lengths = (
            torch.tensor(values, device=logits.device) for values in (self.nodes, self.tokens, self.paths, self.lengths)
        )
        steps = logits.float().log_softmax(-1)[nodes, tokens]
        reduce = "mean" if self.means else "sum"
        return torch.segment_reduce(steps[paths], reduce, lengths=lengths, axis=0, unsafe=True)


def create_tree(start: int, end: int, labels: Sequence[Sequence[int]], *, means: bool = False) -> LabelTree:
    """The tree of `labels` (token ids without the end) under the decoder's start token."""
    children: dict[tuple[int, int], int] = {}
    steps: dict[tuple[int, int], int] = {}
    ids, parents, paths = [start], [-1], []
    for label in labels:
        node = 0
        for token in label:
            paths.append(steps.setdefault((node, token), len(steps)))
            if (node, token) not in children:
                children[node, token] = len(ids)
                ids.append(token)
                parents.append(node)
            node = children[node, token]
        paths.append(steps.setdefault((node, end), len(steps)))
    return LabelTree(
        ids=array("i", ids),
        parents=array("i", parents),
        nodes=array("i", (node for node, _ in steps)),
        tokens=array("i", (token for _, token in steps)),
        paths=array("i", paths),
        lengths=array("i", (len(label) + 1 for label in labels)),
        means=means,
    )


def target_problems(task: TaskSpec, backbone: Backbone) -> list[str]:
    """Why the label strings of a task are not distinct sequences of tokens; empty if they are."""
    problems: list[str] = []
    first: dict[tuple[int, ...], str] = {}
    for text in task.targets:
        ids = backbone.tokenizer.ids(text)
        if not ids:
            problems.append(f"task target {text!r} has no tokens")
        elif first.setdefault(ids, text) != text:
            problems.append(f"task targets {first[ids]!r} and {text!r} have the same tokens")
    return problems


def build_label_tree(task: TaskSpec, backbone: Backbone) -> LabelTree | None:
    """The tree of a closed task's label strings; None for other tasks."""
    if not task.targets:
        return None
    labels = [backbone.tokenizer.ids(text) for text in task.targets]
    return create_tree(backbone.t5.config.start_token_id, backbone.t5.config.eos_token_id, labels)


def text_tree(text: str, backbone: Backbone) -> LabelTree:
    """A single text, scored by its mean log-probability per token."""
    config = backbone.t5.config
    return create_tree(config.start_token_id, config.eos_token_id, [backbone.tokenizer.ids(text)], means=True)
