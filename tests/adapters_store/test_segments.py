"""Ragged operations against a loop over tokens."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.segments import Segments
from peltier_backbone.native import library
from peltier_backbone.norm import LayerNorm
from torch import Tensor
from torch.nn import functional as F

CPU = torch.device("cpu")
LAYOUTS = [
    ((3,), (0,)),
    ((1, 4, 2), (0, 0, 0)),
    ((2, 1, 5, 3), (0, 0, 1, 2)),
    ((1, 1, 1), (0, 1, 2)),
    ((1, 1, 1, 1), (0, 0, 1, 1)),
    ((2, 2), (0, 1)),
    ((20, 5, 15), (0, 1, 1)),
]  # lengths, groups


def _groups(layout: tuple[tuple[int, ...], tuple[int, ...]], fold: int = 1) -> list[int]:
    """The group of each token, each token standing for `fold` blocks."""
    return [group for length, group in zip(*layout, strict=True) for _ in range(length * fold)]


@pytest.fixture(params=["native", "torch"])
def serving(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a server, with native kernels where they were built and without any."""
    if request.param == "torch":
        monkeypatch.setattr(library, "load_library", lambda: None)
    with torch.inference_mode():
        yield


def _draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.usefixtures("serving")
@pytest.mark.parametrize("fold", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_each_token_meets_its_own_weights(layout: tuple[tuple[int, ...], tuple[int, ...]], fold: int):
    """linear and add_linear multiply every token (or its blocks) by its group's matrix."""
    segments, groups = Segments(*layout, CPU), _groups(layout, fold)
    x, weight, bias = _draw(len(groups), 4), _draw(segments.num_groups, 4, 5), _draw(segments.num_groups, 5)
    plain = torch.stack([x[token] @ weight[group] for token, group in enumerate(groups)])
    torch.testing.assert_close(segments.linear(x, weight, fold=fold), plain)
    torch.testing.assert_close(segments.linear(x, weight, bias, fold=fold), plain + bias[groups])
    y = torch.ones(len(groups), 5)
    segments.add_linear(y, x, weight, fold=fold)
    torch.testing.assert_close(y, plain + 1)


@pytest.mark.usefixtures("serving")
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_products_are_activated_and_scaled(layout: tuple[tuple[int, ...], tuple[int, ...]], biased: bool):
    """An activation of the product; a scale of what is added, its bias included."""
    segments, groups = Segments(*layout, CPU), _groups(layout)
    x, weight, scale = _draw(len(groups), 4), _draw(segments.num_groups, 4, 5), _draw(len(groups), 1)
    bias = _draw(segments.num_groups, 5) if biased else None
    plain = segments.linear(x, weight, bias)
    torch.testing.assert_close(segments.linear(x, weight, bias, activation="swish"), F.silu(plain))
    y = torch.ones(len(groups), 5)
    segments.add_linear(y, x, weight, bias, scale=scale)
    torch.testing.assert_close(y, plain * scale + 1)


@pytest.mark.usefixtures("serving")
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_each_row_has_its_own_gate(layout: tuple[tuple[int, ...], tuple[int, ...]]):
    """The mean of its tokens' sigmoids, with its group's weights."""
    segments, groups = Segments(*layout, CPU), _groups(layout)
    x, weight, bias = _draw(len(groups), 4), _draw(segments.num_groups, 4), _draw(segments.num_groups)
    tokens = torch.stack([x[token] @ weight[group] + bias[group] for token, group in enumerate(groups)]).sigmoid()
    expected = torch.stack([piece.mean() for piece in tokens.split(layout[0])])[:, None]
    torch.testing.assert_close(segments.gate(x, weight, bias), expected)


@pytest.mark.usefixtures("serving")
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_each_token_meets_its_own_bias_and_norm(layout: tuple[tuple[int, ...], tuple[int, ...]]):
    """add and norm use the token's group, add in place and into a view."""
    segments, groups = Segments(*layout, CPU), _groups(layout)
    x, weight, bias = _draw(len(groups), 8), _draw(segments.num_groups, 8), _draw(segments.num_groups, 8)
    expected = F.layer_norm(x, (8,), eps=1e-5) * weight[groups] + bias[groups]
    torch.testing.assert_close(segments.norm(x, weight, bias, LayerNorm(torch.ones(8), torch.zeros(8), 1e-5)), expected)
    wide = torch.cat((x, x), -1)
    segments.add(wide[:, 8:], bias)
    torch.testing.assert_close(wide, torch.cat((x, x + bias[groups]), -1))


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_row_means_and_spreading(lengths: list[int]):
    """row_mean averages a row's own tokens; spread gives a row's value to each of them."""
    segments = Segments(lengths, [0] * len(lengths), CPU)
    x = _draw(sum(lengths), 2)
    means = torch.stack([piece.mean(0) for piece in x.split(lengths)])
    torch.testing.assert_close(segments.row_mean(x), means)
    expected = torch.cat([mean.expand(length, 2) for mean, length in zip(means, lengths, strict=True)])
    assert torch.equal(segments.spread(means), expected)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_gradients_are_those_of_the_loop(layout: tuple[tuple[int, ...], tuple[int, ...]]):
    """Training differentiates the same operations: weights, biases and inputs get the plain gradients."""
    segments, groups = Segments(*layout, CPU), _groups(layout)
    inputs = [_draw(len(groups), 4), _draw(segments.num_groups, 4, 5), _draw(segments.num_groups, 5)]
    x, weight, bias = (tensor.requires_grad_() for tensor in inputs)
    factor = _draw(len(groups), 5)
    ours = torch.autograd.grad((segments.linear(x, weight, bias) * factor).sum(), inputs)
    plain = torch.stack([x[token] @ weight[group] + bias[group] for token, group in enumerate(groups)])
    for one, other in zip(ours, torch.autograd.grad((plain * factor).sum(), inputs), strict=True):
        torch.testing.assert_close(one, other)
