"""The likeliest token of a row of logits, natively and by torch."""

import pytest
import torch
from peltier_backbone.decoding.likeliest import find_likeliest


@pytest.fixture(params=[True, False], ids=["torch", "native"])
def grads(request: pytest.FixtureRequest) -> bool:
    """Torch computes while gradients are recorded."""
    return request.param


@pytest.mark.parametrize("width", [1, 7, 16, 100])
def test_it_is_the_largest_and_its_log_probability(width: int, grads: bool):
    """For vocabularies that fill vectors and that do not, with logits of any size."""
    logits = 30 * torch.randn(9, width, generator=torch.Generator().manual_seed(width)) - 40
    with torch.set_grad_enabled(grads):
        found = find_likeliest(logits)
    assert found.tokens.tolist() == logits.argmax(-1).tolist()
    torch.testing.assert_close(found.log_probs.double(), logits.double().log_softmax(-1).amax(-1), atol=1e-5, rtol=1e-5)


def test_the_first_of_equal_ones_is_taken(grads: bool):
    """Wherever they stand."""
    logits = torch.zeros(2, 50)
    logits[0, [5, 20, 36]] = logits[1, [19, 40]] = 1.0
    with torch.set_grad_enabled(grads):
        assert find_likeliest(logits).tokens.tolist() == [5, 19]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_logit_is_not_hidden(bad: float, grads: bool):
    """In its own row alone; a token that cannot be is no harm."""
    logits = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    logits[1, 3], logits[2, 4] = bad, -torch.inf
    with torch.set_grad_enabled(grads):
        assert find_likeliest(logits).log_probs.isfinite().tolist() == [True, False, True]


def test_it_is_read_exactly():
    """Numbers of tokens, and log-probabilities to the last bit."""
    logits = torch.randn(9, 50_000, generator=torch.Generator().manual_seed(0))
    found = find_likeliest(logits)
    assert found.read() == list(zip(found.tokens.tolist(), found.log_probs.tolist(), strict=True))
