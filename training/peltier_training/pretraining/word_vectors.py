"""Word vectors of the text as the first embeddings, so that a small budget is not spent on finding them.

The matrix of positive pointwise mutual information between tokens that stand near each other is factored: Levy,
Goldberg and Dagan 2015, "Improving Distributional Similarity with Lessons Learned from Word Embeddings", sections 2.1,
2.2 and 3.1 to 3.3 (dynamic window, smoothed contexts, roots of the singular values).
"""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds
from torch import Tensor

from peltier_training.pretraining.tokens import Stream

_WINDOW = 8  # tokens to each side; one at distance d weighs 1 - (d - 1) / 8
_SMOOTHING = 0.75  # the power of a context's frequency
_MAX_TOKENS = 30_000_000  # of the text, from its beginning
_AT_ONCE = 4_000_000
_RARE = 5  # tokens that are less frequent keep their random vectors


@torch.no_grad()
def begin_with_word_vectors(embeddings: Tensor, stream: Stream, seed: int) -> int:
    """Overwrite the rows of `embeddings` [vocabulary, width] whose tokens are frequent enough in `stream` by their word
    vectors, each with root mean square 1 as T5 begins; returns how many."""
    text = np.asarray(stream[:_MAX_TOKENS])
    vocabulary, width = embeddings.shape
    vectors = _factor(_positive_information(_near(text, vocabulary)), min(width, vocabulary - 1), seed)
    frequent = np.flatnonzero((np.bincount(text, minlength=vocabulary) >= _RARE) & vectors.any(axis=1))
    chosen = vectors[frequent]
    chosen /= np.sqrt(np.mean(chosen**2, axis=1, keepdims=True))
    embeddings[torch.from_numpy(frequent), : chosen.shape[1]] = torch.from_numpy(chosen).to(embeddings)
    return len(frequent)


def _near(text: Stream, vocabulary: int) -> csr_array:
    """How often two tokens stand near each other, weighed by their distance [vocabulary, vocabulary]; symmetric."""
    counts = csr_array((vocabulary, vocabulary), dtype=np.float32)
    for begin in range(0, len(text), _AT_ONCE):
        piece = text[begin : begin + _AT_ONCE + _WINDOW].astype(np.int64)
        for distance in range(1, min(_WINDOW, len(piece) - 1) + 1):
            last = min(_AT_ONCE, len(piece) - distance)
            pairs, times = np.unique(piece[:last] * vocabulary + piece[distance:][:last], return_counts=True)
            weights = (times * (1 - (distance - 1) / _WINDOW)).astype(np.float32)
            counts = counts + csr_array((weights, np.divmod(pairs, vocabulary)), shape=counts.shape)
    return counts + counts.T


def _positive_information(counts: csr_array) -> csr_array:
    """max(log p(a, b) / (p(a) p'(b)), 0), with smoothed p', made symmetric."""
    entries = counts.tocoo()
    totals = counts.sum(axis=1)
    contexts = totals**_SMOOTHING
    contexts = contexts / contexts.sum()
    row, column = entries.coords
    values = np.log(entries.data / totals[row] / contexts[column])
    kept = values > 0
    found = csr_array((values[kept].astype(np.float32), (row[kept], column[kept])), shape=counts.shape)
    return (found + found.T) * np.float32(0.5)


def _factor(matrix: csr_array, width: int, seed: int) -> NDArray[np.float32]:
    """The leading left singular vectors times the roots of their values [vocabulary, width], the largest first."""
    left, values, _ = svds(matrix, k=width, rng=np.random.default_rng(seed))
    order = np.argsort(-values)
    return np.ascontiguousarray((left[:, order] * np.sqrt(values[order])), np.float32)
