"""The training objective of a token classification."""

from torch import Tensor
from torch.nn import functional as F

from peltier_training.data.padding import IGNORED
from peltier_training.data.tag_rows import NO_TOKEN


def tag_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy over the tokens that carry the tag of a word.

    `logits` are [tokens, tags] of packed rows; `labels` [rows, length] are the tags of their tokens, `IGNORED` for
    tokens that carry none and `NO_TOKEN` after the last one.
    """
    tags = labels[labels != NO_TOKEN]
    losses = F.cross_entropy(logits, tags, ignore_index=IGNORED, reduction="sum")
    return losses / (tags != IGNORED).sum().clamp(min=1)
