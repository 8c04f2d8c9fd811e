"""The loss of starts and ends."""

import torch
from peltier_training.fit.span_objective import SpanObjective
from torch.nn import functional as F


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
