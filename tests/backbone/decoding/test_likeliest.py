"""The likeliest token of a row of logits, natively and by torch."""

import math
from collections.abc import Callable

import pytest
import torch
from peltier_backbone.decoding.likeliest import find_likeliest
from peltier_backbone.native.choice import load_library
from torch import Tensor

Found = list[tuple[int, float]]


def _native(logits: Tensor) -> Found:
    library = load_library()
    assert library is not None
    tokens, log_probs = library.likeliest(logits)
    return list(zip(tokens.tolist(), log_probs.tolist(), strict=True))


@pytest.fixture(params=[find_likeliest, _native], ids=["torch", "native"])
def find(request: pytest.FixtureRequest) -> Callable[[Tensor], Found]:
    """The function in torch, and the kernel."""
    return request.param


@pytest.mark.parametrize("width", [1, 7, 16, 100])
def test_it_is_the_largest_and_its_log_probability(width: int, find: Callable[[Tensor], Found]):
    """For vocabularies that fill vectors and that do not, with logits of any size."""
    logits = 30 * torch.randn(9, width, generator=torch.Generator().manual_seed(width)) - 40
    found = find(logits)
    assert [token for token, _ in found] == logits.argmax(-1).tolist()
    log_probs = torch.tensor([log_prob for _, log_prob in found], dtype=torch.float64)
    torch.testing.assert_close(log_probs, logits.double().log_softmax(-1).amax(-1), atol=1e-5, rtol=1e-5)


def test_the_first_of_equal_ones_is_taken(find: Callable[[Tensor], Found]):
    """Wherever they stand."""
    logits = torch.zeros(2, 50)
    logits[0, [5, 20, 36]] = logits[1, [19, 40]] = 1.0
    assert [token for token, _ in find(logits)] == [5, 19]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_logit_is_not_hidden(bad: float, find: Callable[[Tensor], Found]):
    """In its own row alone; a token that cannot be is no harm."""
    logits = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    logits[1, 3], logits[2, 4] = bad, -torch.inf
    assert [math.isfinite(log_prob) for _, log_prob in find(logits)] == [True, False, True]


def test_it_is_read_exactly():
    """Numbers of tokens, and log-probabilities to the last bit."""
    logits = torch.randn(9, 50_000, generator=torch.Generator().manual_seed(0))
    tops, tokens = logits.max(-1)
    log_probs = tops - logits.logsumexp(-1)
    assert find_likeliest(logits) == list(zip(tokens.tolist(), log_probs.tolist(), strict=True))
