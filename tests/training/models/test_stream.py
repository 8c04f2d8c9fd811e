"""The random numbers of a training pass."""

import pytest
import torch
from peltier_training.models.stream import Stream


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_keeps_the_mean(rate: float):
    """The share of zeros is the rate, and the rest is scaled by the inverse of what is kept."""
    dropped = Stream(0).drop(torch.ones(1000, 1000), rate)
    assert (dropped == 0).float().mean().item() == pytest.approx(rate, abs=0.002)
    assert dropped.max().item() == pytest.approx(1 / (1 - rate), rel=1e-4)
    assert dropped.mean().item() == pytest.approx(1, abs=0.003)


def test_a_key_decides_the_numbers():
    """Seed, step, pass and process each give other numbers; torch's generator gives those without a key."""
    masks = [Stream(*key).mask((64,), 0.5) for key in ((0, 1, 0), (0, 1, 0), (1, 1, 0), (0, 2, 0), (0, 1, 1))]
    assert torch.equal(masks[0], masks[1])
    assert all(not torch.equal(masks[0], other) for other in masks[2:])
    torch.manual_seed(3)
    first, second = Stream().routes(1000, (8,)), Stream().routes(1000, (8,))
    torch.manual_seed(3)
    assert torch.equal(first, Stream().routes(1000, (8,)))
    assert not torch.equal(first, second)
