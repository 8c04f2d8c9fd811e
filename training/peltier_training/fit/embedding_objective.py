"""The losses of embeddings, over pairs of texts."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

DEFAULT_TEMPERATURE = 0.05


@dataclass(frozen=True)
class EmbeddingObjective:
    """The objective of the embeddings [pairs, 2, size] of pairs. `labels` are scores [pairs], or the numbers [pairs, 2]
    of the texts of pairs that belong together (`Labels.targets`).

    With scores it is the mean squared error of the cosine (Reimers and Gurevych 2019). Without, it is the multiple
    negatives ranking loss (Henderson et al. 2017): the cross-entropy of each first text's own second text, among all
    second texts of the batch, by cosine over `temperature`. A second text that belongs to the first text in another
    pair of the batch is no negative.

    The loss is the mean over the first `dimensions` values of the embeddings and all values (Matryoshka representation
    learning, Kusupati et al. 2022)."""

    dimensions: Sequence[int] = ()
    temperature: float = DEFAULT_TEMPERATURE
    consistency: float = 0.0  # an embedding is not a distribution

    def task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        sizes = {*self.dimensions, logits.shape[-1]}
        losses = [self._loss(F.normalize(logits[..., :size], dim=-1), labels) for size in sizes]
        return torch.stack(losses).mean()

    def divergence(self, logits: Tensor, other: Tensor, lengths: Sequence[int]) -> Tensor:
        raise AssertionError("an embedding has no consistency loss")

    def _loss(self, vectors: Tensor, labels: Tensor) -> Tensor:
        first, second = vectors.unbind(1)
        if labels.dim() == 1:
            return F.mse_loss((first * second).sum(-1), labels)
        scores = (first @ second.T / self.temperature).masked_fill(_known(labels), -torch.inf)
        return F.cross_entropy(scores, torch.arange(len(labels), device=labels.device))


def _known(numbers: Tensor) -> Tensor:
    """Where the second text of a column belongs to the first text of a row, without the row's own, [pairs, pairs]."""
    first, second = numbers.unbind(1)
    same = (first[:, None] == first[None, :]) | (second[:, None] == second[None, :])
    return same & ~torch.eye(len(numbers), dtype=torch.bool, device=numbers.device)
