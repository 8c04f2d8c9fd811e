"""The losses of embeddings."""

import pytest
import torch
from peltier_training.fit.embedding_objective import EmbeddingObjective
from torch.nn import functional as F


@pytest.fixture
def vectors() -> torch.Tensor:
    return torch.randn(4, 2, 6, generator=torch.Generator().manual_seed(0))


def test_scores_are_cosines(vectors: torch.Tensor):
    """The mean squared error."""
    scores = torch.tensor([0.0, 1.0, 0.5, -0.5])
    cosines = F.cosine_similarity(vectors[:, 0], vectors[:, 1])
    torch.testing.assert_close(EmbeddingObjective().task_loss(vectors, scores), ((cosines - scores) ** 2).mean())


def test_the_other_pairs_are_negatives(vectors: torch.Tensor):
    """The cross-entropy over all second texts, as sentence-transformers' MultipleNegativesRankingLoss has it."""
    numbers = torch.arange(8).view(4, 2)
    cosines = F.cosine_similarity(vectors[:, None, 0], vectors[None, :, 1], dim=-1)
    expected = F.cross_entropy(20 * cosines, torch.arange(4))
    torch.testing.assert_close(EmbeddingObjective().task_loss(vectors, numbers), expected)


def test_what_belongs_together_is_no_negative(vectors: torch.Tensor):
    """Neither an equal second text, nor the second text of an equal first text."""
    alone = EmbeddingObjective().task_loss(vectors[:1], torch.tensor([[0, 1]]))
    for numbers in ([[0, 1], [2, 1]], [[0, 1], [0, 2]]):
        torch.testing.assert_close(EmbeddingObjective().task_loss(vectors[:2], torch.tensor(numbers)), alone)


def test_matryoshka_is_the_mean_of_all_sizes(vectors: torch.Tensor):
    """Each of the first values alone, and all."""
    scores = torch.tensor([0.0, 1.0, 0.5, -0.5])
    losses = [EmbeddingObjective().task_loss(vectors[..., :size], scores) for size in (2, 4, 6)]
    found = EmbeddingObjective((2, 4, 6)).task_loss(vectors, scores)
    torch.testing.assert_close(found, torch.stack(losses).mean())
