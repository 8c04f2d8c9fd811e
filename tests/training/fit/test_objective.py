"""What is minimised."""

import math

import pytest
import torch
from peltier_training.data.padding import IGNORED
from peltier_training.data.tag_rows import NO_TOKEN
from peltier_training.fit.objective import HeadObjective, TextObjective


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
    """Over the one output."""
    loss = HeadObjective("regression", 0.0).task_loss(torch.tensor([[1.0], [3.0]]), torch.tensor([2.0, 1.0]))
    assert loss.item() == pytest.approx(2.5)


def test_a_number_has_no_divergence():
    """Whatever weight a regression is given."""
    assert HeadObjective("regression", 1.0).consistency == 0.0
    assert HeadObjective("multilabel", 0.5).consistency == 0.5


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
