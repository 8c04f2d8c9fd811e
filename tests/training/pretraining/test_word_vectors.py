"""Embeddings that begin as word vectors."""

import math
import random
from collections import Counter

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from peltier_training.pretraining import word_vectors
from peltier_training.pretraining.word_vectors import begin_with_word_vectors

WINDOW = 8


def naive_information(text: list[int], vocabulary: int) -> NDArray[np.float64]:
    """Positive pointwise mutual information from its definition, one pair of tokens at a time."""
    near: Counter[tuple[int, int]] = Counter()
    for i, a in enumerate(text):
        for distance in range(1, WINDOW + 1):
            for j in (i - distance, i + distance):
                if 0 <= j < len(text):
                    near[a, text[j]] += 1 - (distance - 1) / WINDOW
    totals = [sum(near[a, b] for b in range(vocabulary)) for a in range(vocabulary)]
    smooth = [total**0.75 for total in totals]
    found = np.zeros((vocabulary, vocabulary))
    for (a, b), count in near.items():
        found[a, b] = max(math.log(count / totals[a] / (smooth[b] / sum(smooth))), 0)
    return (found + found.T) / 2


@pytest.mark.parametrize("at_once", [7, 100, 1000])
def test_the_matrix_is_the_definitions(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the text is cut into pieces."""
    monkeypatch.setattr(word_vectors, "_CHUNK_TOKENS", at_once)
    text = random.Random(0).choices(range(12), weights=range(1, 13), k=300)
    counts = word_vectors._near(np.array(text, np.uint16), 12)
    # float32 logarithms of counts below 10⁴
    np.testing.assert_allclose(
        word_vectors._positive_information(counts).toarray(), naive_information(text, 12), rtol=0, atol=1e-5
    )


def test_tokens_with_the_same_neighbours_have_the_same_direction() -> None:
    """5 and 6 stand in one surrounding, 7 and 8 in another; every vector has the size that T5 begins with."""
    draw = random.Random(1)
    sentences = [[10, draw.choice((5, 6)), 11, 12] if draw.random() < 0.5 else [13, draw.choice((7, 8)), 14, 15]
                 for _ in range(400)]  # fmt: skip
    # Eight tokens of noise part the sentences, so that no window has two of them.
    text = [token for sentence in sentences for token in (*sentence, *draw.choices(range(20, 60), k=8))]
    embeddings = torch.zeros(64, 8)
    begin_with_word_vectors(embeddings, np.array(text, np.uint16), seed=0)
    chosen = embeddings[[5, 6, 7, 8]]
    torch.testing.assert_close(chosen.square().mean(1), torch.ones(4))
    alike = torch.nn.functional.cosine_similarity(chosen[:, None], chosen[None], dim=-1)
    assert alike[0, 1] > 0.9
    assert alike[2, 3] > 0.9
    assert alike[:2, 2:].abs().max() < 0.5


def test_rare_tokens_stay_as_they_were() -> None:
    """Four times is too few to learn from, and what never stands in the text (a sentinel) is not touched."""
    text = random.Random(2).choices(range(10), k=500)
    for place in (50, 150, 250, 350):
        text[place] = 10
    embeddings = torch.randn(16, 4)
    before = embeddings.clone()
    assert begin_with_word_vectors(embeddings, np.array(text, np.uint16), seed=0) == 10
    assert torch.equal(embeddings[10:], before[10:])
    assert not (embeddings[:10] == before[:10]).any()
