"""The likeliest token of a row of logits, natively and by torch."""

from collections.abc import Callable

import pytest
import torch
from peltier_backbone.decoding.likeliest import Likeliest, find_likeliest
from peltier_backbone.native.choice import load_library
from torch import Tensor


def _native(logits: Tensor) -> Likeliest:
    library = load_library()
    assert library is not None
    return Likeliest(*library.likeliest(logits))


@pytest.fixture(params=[find_likeliest, _native], ids=["torch", "native"])
def find(request: pytest.FixtureRequest) -> Callable[[Tensor], Likeliest]:
    """The function in torch, and the kernel."""
    return request.param


@pytest.mark.parametrize("width", [1, 7, 16, 100])
def test_it_is_the_largest_and_its_log_probability(width: int, find: Callable[[Tensor], Likeliest]):
    """For vocabularies that fill vectors and that do not, with logits of any size."""
    logits = 30 * torch.randn(9, width, generator=torch.Generator().manual_seed(width)) - 40
    found = find(logits)
    assert found.tokens.tolist() == logits.argmax(-1).tolist()
    torch.testing.assert_close(found.log_probs.double(), logits.double().log_softmax(-1).amax(-1), atol=1e-5, rtol=1e-5)


def test_the_first_of_equal_ones_is_taken(find: Callable[[Tensor], Likeliest]):
    """Wherever they stand."""
    logits = torch.zeros(2, 50)
    logits[0, [5, 20, 36]] = logits[1, [19, 40]] = 1.0
    assert find(logits).tokens.tolist() == [5, 19]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_logit_is_not_hidden(bad: float, find: Callable[[Tensor], Likeliest]):
    """In its own row alone; a token that cannot be is no harm."""
    logits = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    logits[1, 3], logits[2, 4] = bad, -torch.inf
    assert find(logits).log_probs.isfinite().tolist() == [True, False, True]


def test_it_is_read_exactly():
    """Numbers of tokens, and log-probabilities to the last bit."""
    logits = torch.randn(9, 50_000, generator=torch.Generator().manual_seed(0))
    found = find_likeliest(logits)
    assert found.read() == list(zip(found.tokens.tolist(), found.log_probs.tolist(), strict=True))
