"""What is minimised."""

import math

import pytest
import torch
from peltier_training.config.run import RANKING_LOSSES
from peltier_training.data.dataset import IGNORED
from peltier_training.data.rows import NO_TOKEN
from peltier_training.fit.objective import (
    EmbeddingObjective,
    HeadObjective,
    RankingObjective,
    SpanObjective,
    TextObjective,
    create_objective,
)
from torch.nn import functional as F

from tests.training.conftest import MakeRun

# Relevance and query of five documents of two queries, mixed.
LABELS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [3.0, 1.0], [1.0, 1.0]])
SCORES = torch.tensor([[1.0], [0.5], [0.0], [2.0], [-1.0]])


def test_classification_minimises_cross_entropy():
    """Even logits over two labels cost ln 2."""
    loss = HeadObjective("classification", 0.0).task_loss(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
    assert loss.item() == pytest.approx(math.log(2))


def test_multilabel_minimises_a_cross_entropy_a_label():
    """The mean over rows and labels of -log sigmoid(+-z)."""
    logits, labels = torch.tensor([[0.0, 1.0], [-1.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    wanted = (math.log(2) + math.log(1 + math.e) + math.log(1 + math.e**-1) + math.log(1 + math.e**-2)) / 4
    assert HeadObjective("multilabel", 0.0).task_loss(logits, labels).item() == pytest.approx(wanted)


def test_regression_minimises_the_squared_error():
    loss = HeadObjective("regression", 0.0).task_loss(torch.tensor([[1.0], [3.0]]), torch.tensor([2.0, 1.0]))
    assert loss.item() == pytest.approx(2.5)


def test_a_number_has_no_divergence(make_run: MakeRun):
    """Whatever weight a regression is given."""
    assert create_objective(make_run("regression"), 1.0).consistency == 0.0
    assert create_objective(make_run("multilabel"), 0.5).consistency == 0.5


def test_texts_minimise_a_cross_entropy_a_token():
    """The mean over all tokens, whichever row they are of: even logits over four words cost ln 4."""
    objective = TextObjective(1.0)
    assert objective.task_loss(torch.zeros(5, 4), torch.tensor([0, 1, 2, 3, 0])).item() == pytest.approx(math.log(4))
    logits = torch.tensor([[10.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    assert objective.task_loss(logits, torch.tensor([0, 0, 0])).item() == pytest.approx(10 / 3, abs=1e-3)


def test_the_divergence_of_a_text_is_its_tokens():
    """The sum over target positions, its mean over rows: as much as if each position were a row, times their number."""
    first, second = torch.randn(6, 9), torch.randn(6, 9)
    as_rows = HeadObjective("classification", 1.0).divergence(first, second, [1] * 6)
    torch.testing.assert_close(TextObjective(1.0).divergence(first, second, [3, 3]), 3 * as_rows)


def test_tokens_that_carry_no_tag_are_left_out_of_the_loss():
    """Other tokens of a word, and what fills a row up; a batch without any tag costs nothing."""
    logits = torch.randn(5, 3)
    labels = torch.tensor([[0, 2, IGNORED, NO_TOKEN], [IGNORED, 1, NO_TOKEN, NO_TOKEN]])
    wanted = torch.nn.functional.cross_entropy(logits[[0, 1, 4]], torch.tensor([0, 2, 1]))
    objective = HeadObjective("token-classification", 0.0)
    torch.testing.assert_close(objective.task_loss(logits, labels), wanted)
    assert objective.task_loss(logits[:1], torch.tensor([[IGNORED, NO_TOKEN]])) == 0


def test_pairs_of_a_query_cost_their_logistic_loss():
    """The mean over the pairs of unequal relevance, all of one query."""
    margins = [1.0 - 0.0, 2.0 - 0.5, 2.0 - -1.0, -1.0 - 0.5]
    wanted = sum(math.log(1 + math.exp(-margin)) for margin in margins) / 4
    assert RankingObjective("pairwise").task_loss(SCORES, LABELS).item() == pytest.approx(wanted)


def test_a_list_costs_its_cross_entropy():
    """The mean over queries; the second has shares 3/4 and 1/4."""
    first = math.log(math.e + 1) - 1.0
    total = math.log(math.exp(0.5) + math.exp(2) + math.exp(-1))
    wanted = (first + 0.75 * (total - 2.0) + 0.25 * (total + 1.0)) / 2
    assert RankingObjective("listwise").task_loss(SCORES, LABELS).item() == pytest.approx(wanted)


@pytest.mark.parametrize("loss", RANKING_LOSSES)
def test_a_query_without_relevance_costs_nothing(loss: str):
    """Its loss is 0 and so is its gradient, which is finite."""
    scores = torch.zeros(3, 1, requires_grad=True)
    found = RankingObjective(loss).task_loss(scores, torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]))
    found.backward()
    assert found.item() == 0
    assert torch.equal(scores.grad, torch.zeros(3, 1))


@pytest.mark.parametrize("loss", RANKING_LOSSES)
def test_gradients_stay_finite_for_far_scores(loss: str):
    """Float32 scores a thousand apart."""
    scores = torch.tensor([[-500.0], [500.0]], requires_grad=True)
    RankingObjective(loss).task_loss(scores, torch.tensor([[1.0, 0.0], [0.0, 0.0]])).backward()
    assert bool(scores.grad.isfinite().all())


@pytest.fixture
def vectors() -> torch.Tensor:
    return torch.randn(4, 2, 6, generator=torch.Generator().manual_seed(0))


def test_scores_are_cosines(vectors: torch.Tensor):
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
    scores = torch.tensor([0.0, 1.0, 0.5, -0.5])
    losses = [EmbeddingObjective().task_loss(vectors[..., :size], scores) for size in (2, 4, 6)]
    found = EmbeddingObjective((2, 4, 6)).task_loss(vectors, scores)
    torch.testing.assert_close(found, torch.stack(losses).mean())


def test_the_loss_is_that_of_transformers():
    """The mean of the cross-entropies of starts and ends, each over the tokens of its own row."""
    logits = torch.randn(9, 2, generator=torch.Generator().manual_seed(0))
    rows = torch.split(logits, [4, 5])
    wanted = [
        F.cross_entropy(row[None, :, column], torch.tensor([place]))
        for row, places in zip(rows, ((2, 3), (0, 0)), strict=True)
        for column, place in enumerate(places)
    ]
    found = SpanObjective(0.0).task_loss(logits, torch.tensor([[2, 3, 4], [0, 0, 5]]))
    torch.testing.assert_close(found, torch.stack(wanted).mean())


def test_the_divergence_of_a_row_is_over_its_tokens():
    """The mean over rows, starts and ends of half the symmetric divergence; equal passes have none."""
    generator = torch.Generator().manual_seed(1)
    first, second = (torch.randn(9, 2, generator=generator) for _ in range(2))
    wanted = []
    for own, twin in zip(torch.split(first, [4, 5]), torch.split(second, [4, 5]), strict=True):
        p, q = own.softmax(0), twin.softmax(0)
        wanted.append(0.5 * ((p - q) * (p / q).log()).sum(0).mean())
    torch.testing.assert_close(SpanObjective(1.0).divergence(first, second, [4, 5]), torch.stack(wanted).mean())
    assert SpanObjective(1.0).divergence(first, first, [4, 5]).item() == 0.0
