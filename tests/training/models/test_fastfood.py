"""The projection of intrinsic SAID."""

import pytest
import torch
from peltier_training.models.fastfood import Fastfood, hadamard
from scipy.linalg import hadamard as matrix


@pytest.mark.parametrize("bits", [0, 1, 3, 6, 7, pytest.param(13, marks=pytest.mark.slow)])
def test_the_transform_is_the_hadamard_matrix(bits: int):
    """Of every length, whether one product or several make it."""
    x = torch.randn(1 << bits, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(hadamard(x), torch.from_numpy(matrix(1 << bits)).double() @ x)


def test_the_gradient_is_that_of_the_papers_code():
    """Each transform divides it by the root of the length, which the learning rates of the paper count on
    (docs/methods/baselines.md#intrinsic-said)."""
    x = torch.randn(8, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(8, dtype=torch.float64)
    (hadamard(x) * weights).sum().backward()
    expected = torch.from_numpy(matrix(8)).double() @ weights / 8**0.5
    torch.testing.assert_close(x.grad, expected)


def test_the_projection_is_its_formula():
    """HW(G HW(B x)[P]) / (sqrt(LL sum G^2) sqrt(D / LL)), cut to D (docs/methods/baselines.md#intrinsic-said)."""
    one, x = Fastfood(6, torch.Generator().manual_seed(0)), torch.randn(5)
    full = torch.from_numpy(matrix(8)).float()
    mixed = (full @ (torch.cat((x, torch.zeros(3))) * one.signs))[one.order.long()]
    expected = (full @ (one.gauss * mixed))[:6] / ((8 * one.gauss.square().sum()) ** 0.5 * (6 / 8) ** 0.5)
    torch.testing.assert_close(one(x), expected)
    assert set(one.signs.tolist()) == {-1, 1}
    assert sorted(one.order.tolist()) == list(range(8))


def test_a_small_tensor_sees_the_first_coordinates_alone():
    """What is longer than the tensor's power of two is cut, as in the paper's code."""
    one, x = Fastfood(3, torch.Generator().manual_seed(0)), torch.randn(9)
    assert torch.equal(one(x), one(x[:4]))
    assert Fastfood(1, torch.Generator())(x).shape == (1,)


def test_the_projection_keeps_lengths_on_average():
    """Over many draws the projected vector is as long as the vector."""
    x, generator = torch.randn(64), torch.Generator().manual_seed(0)
    lengths = torch.stack([Fastfood(64, generator)(x).norm() for _ in range(200)])
    # One draw's squared length strays by about sqrt(2 / 64) of itself at most, its mean over 200 by a fourteenth.
    assert lengths.square().mean().sqrt() == pytest.approx(float(x.norm()), rel=5 * (2 / 64 / 200) ** 0.5)
