"""The training objective of answers that are spans of a context."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_training.models.experts import consistency_loss


@dataclass(frozen=True)
class SpanObjective:
    """The objective of the logits [tokens, 2] of packed rows, back to back: starts and ends are distributions over the
    tokens of a row. `labels` [rows, 3] have the tokens at which an answer starts and ends, and the row's number of
    tokens. Losses are means over rows, starts and ends."""

    consistency: float

    def task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        rows = torch.split(logits, labels[:, 2].tolist())
        losses = [F.cross_entropy(row.T, places) for row, places in zip(rows, labels[:, :2], strict=True)]
        return torch.stack(losses).mean()

    def divergence(self, logits: Tensor, other: Tensor, lengths: Sequence[int]) -> Tensor:
        pairs = zip(*(torch.split(one, list(lengths)) for one in (logits, other)), strict=True)
        return torch.stack([consistency_loss(row.T, twin.T) for row, twin in pairs]).mean()
