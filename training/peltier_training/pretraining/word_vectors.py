"""Word vectors of the text as initial embeddings, which saves a small budget from learning them.

They are factors of the matrix of positive pointwise mutual information between neighbouring tokens: Levy, Goldberg
and Dagan 2015, "Improving Distributional Similarity with Lessons Learned from Word Embeddings", sections 2.1,
2.2 and 3.1 to 3.3 (dynamic window, smoothed contexts, roots of the singular values).
"""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds
from torch import Tensor

from peltier_training.pretraining.dataset import TokenStream

_WINDOW = 8  # tokens to each side; the weight at distance d is 1 - (d - 1) / 8
_SMOOTHING = 0.75  # the power of a context's frequency
_MAX_TOKENS = 30_000_000  # of the text, from its beginning
_CHUNK_TOKENS = 4_000_000
_MIN_COUNT = 5  # rarer tokens keep their random vectors


@torch.no_grad()
def begin_with_word_vectors(embeddings: Tensor, stream: TokenStream, seed: int) -> int:
    """Overwrite the rows of `embeddings` [vocabulary, width] of frequent tokens in `stream` with word vectors of root
    mean square 1, as in T5's initialisation. Returns their number."""
    text = np.asarray(stream[:_MAX_TOKENS])
    vocabulary, width = embeddings.shape
    vectors = _factor(_positive_information(_near(text, vocabulary)), min(width, vocabulary - 1), seed)
    frequent = np.flatnonzero((np.bincount(text, minlength=vocabulary) >= _MIN_COUNT) & vectors.any(axis=1))
    chosen = vectors[frequent]
    chosen /= np.sqrt(np.mean(chosen**2, axis=1, keepdims=True))
    embeddings[torch.from_numpy(frequent), : chosen.shape[1]] = torch.from_numpy(chosen).to(embeddings)
    return len(frequent)


def _near(text: TokenStream, vocabulary: int) -> csr_array:
    """Symmetric counts of neighbouring tokens, weighted by their distance [vocabulary, vocabulary]."""
    counts = csr_array((vocabulary, vocabulary), dtype=np.float32)
    for begin in range(0, len(text), _CHUNK_TOKENS):
        piece = text[begin : begin + _CHUNK_TOKENS + _WINDOW].astype(np.int64)
        for distance in range(1, min(_WINDOW, len(piece) - 1) + 1):
            last = min(_CHUNK_TOKENS, len(piece) - distance)
            pairs, times = np.unique(piece[:last] * vocabulary + piece[distance:][:last], return_counts=True)
            weights = (times * (1 - (distance - 1) / _WINDOW)).astype(np.float32)
            counts = counts + csr_array((weights, np.divmod(pairs, vocabulary)), shape=counts.shape)
    return counts + counts.T


def _positive_information(counts: csr_array) -> csr_array:
    """max(log p(a, b) / (p(a) p'(b)), 0) with smoothed p', symmetrised."""
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
    """The leading left singular vectors times the square roots of their values [vocabulary, width], largest first."""
    left, values, _ = svds(matrix, k=width, rng=np.random.default_rng(seed))
    order = np.argsort(-values)
    return np.ascontiguousarray((left[:, order] * np.sqrt(values[order])), np.float32)
