"""The losses of ranking against values worked out by hand."""

import math

import pytest
import torch
from peltier_training.config.ranking_loss import RANKING_LOSSES
from peltier_training.fit.ranking_objective import RankingObjective

# Relevance and query of five documents of two queries, mixed.
LABELS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [3.0, 1.0], [1.0, 1.0]])
SCORES = torch.tensor([[1.0], [0.5], [0.0], [2.0], [-1.0]])


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
