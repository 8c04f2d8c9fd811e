"""The random numbers of a training pass."""

import pytest
import torch
from peltier_training.models.stream import Stream


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_keeps_the_mean(rate: float):
    """The share of zeros is the rate, to five standard errors; the rest is scaled by the inverse of what is kept."""
    ones = torch.ones(1000, 1000)
    for dropped in (Stream(0).drop(ones, rate), ones * Stream(0)._device_mask(ones, rate)):
        most = 5 * (rate * (1 - rate) / ones.numel()) ** 0.5
        assert (dropped == 0).float().mean().item() == pytest.approx(rate, abs=most)
        assert dropped.max().item() == pytest.approx(1 / (1 - rate), rel=1e-4)
        assert dropped.mean().item() == pytest.approx(1, abs=most / (1 - rate))


def test_a_key_decides_the_numbers():
    """Seed, step, pass and process each give other numbers; torch's generator gives those without a key."""
    ones, keys = torch.ones(64), ((0, 1, 0), (0, 1, 0), (1, 1, 0), (0, 2, 0), (0, 1, 1))
    for draw in (Stream.drop, Stream._device_mask):
        first, same, *others = [draw(Stream(*key), ones, 0.5) for key in keys]
        assert torch.equal(first, same)
        assert all(not torch.equal(first, other) for other in others)
    torch.manual_seed(3)
    first, second = Stream().routes(1000, (8,)), Stream().routes(1000, (8,))
    torch.manual_seed(3)
    assert torch.equal(first, Stream().routes(1000, (8,)))
    assert not torch.equal(first, second)
