"""The similarity of texts by their embeddings."""

import numpy as np
import torch
from peltier_training.evaluate.metrics import LateInteraction, TermProducts, embedding
from peltier_training.models.model import similarities


def _output(**logits: float) -> torch.Tensor:
    """The terms of a text, by the letters of the alphabet."""
    return torch.tensor([[float(ord(term) - ord("a")), logit] for term, logit in logits.items()])


def test_texts_are_as_similar_as_the_product_of_their_weights() -> None:
    """Of pairs by its cosine; a term without a positive logit does not count."""
    outputs = [_output(a=1.0, b=-1.0), _output(c=2.0, a=1.0), _output(b=3.0, d=1.0), _output(b=1.0, c=-2.0)]
    products = TermProducts(outputs, 4)
    a = np.log(2.0)
    expected = [[a * a, 0.0], [0.0, np.log(4.0) * a]]
    np.testing.assert_allclose(products.between(range(2), np.array([0, 1])), expected, rtol=1e-6)
    cosines = [a / np.hypot(np.log(3.0), a), np.log(4.0) / np.hypot(np.log(4.0), a)]
    np.testing.assert_allclose(products.of_pairs(), cosines, rtol=1e-6)
    assert products.num_terms == 1.5


def test_texts_without_terms_are_like_none() -> None:
    """They have no direction, and no rank but the last."""
    products = TermProducts([_output(a=-1.0), _output(a=1.0), _output(b=1.0), _output(b=1.0)], 4)
    assert products.of_pairs().tolist() == [0.0, 1.0]
    assert embedding(products, np.array([[0, 1], [2, 3]])) == {"mrr": 0.75, "accuracy": 0.5}


def test_texts_are_as_similar_as_the_vectors_of_their_tokens() -> None:
    """The mean over the first text's tokens of the largest cosine, whatever the lengths of vectors and texts; training
    has the same similarities."""
    generator = torch.Generator().manual_seed(0)
    lengths = (3, 5, 4, 2, 1, 6)
    outputs = [torch.randn(length, 4, generator=generator) for length in lengths]
    units = [output / output.norm(dim=1, keepdim=True) for output in outputs]
    expected = [[float((one @ other.T).amax(1).mean()) for other in units[1::2]] for one in units[::2]]
    found = LateInteraction(outputs)
    np.testing.assert_allclose(found.between(range(1, 3), np.array([2, 0])), np.array(expected)[1:, [2, 0]], rtol=1e-5)
    np.testing.assert_allclose(found.of_pairs(), np.diagonal(expected), rtol=1e-5)
    np.testing.assert_allclose(similarities(torch.cat(outputs), lengths).numpy(), expected, rtol=1e-5)
