"""The metrics of embeddings."""

from typing import Any

import numpy as np
from peltier_client.quality.metrics import correlate

Array = np.ndarray[Any, Any]
_CHUNK_ROWS = 1024


def embedding(vectors: Array, targets: Array) -> dict[str, float]:
    """Of pairs with scores [pairs], the correlations of their cosines with the scores. Of pairs that belong together,
    with the numbers [pairs, 2] of their texts, the mean reciprocal rank of the own second text among all different
    second texts by cosine (`mrr`), and the share of pairs in which it is the first (`accuracy`)."""
    if targets.ndim == 1:
        return correlate(targets.tolist(), cosines(vectors).tolist())
    found = ranks(vectors, targets)
    return {"mrr": float((1 / found).mean()), "accuracy": float((found == 1).mean())}


def answers(vectors: Array, targets: Array) -> Array:
    """The cosine of each pair with a score, or the rank of the second text of each pair that belongs together."""
    return cosines(vectors) if targets.ndim == 1 else ranks(vectors, targets)


def cosines(vectors: Array) -> Array:
    """The cosine [pairs] of each pair of vectors [pairs, 2, size]."""
    first, second = np.moveaxis(_units(vectors), 1, 0)
    found: Array = (first * second).sum(-1)
    return found


def ranks(vectors: Array, numbers: Array) -> Array:
    """The rank [pairs], from 1, of each pair's second text among the different second texts of all pairs, without those
    that belong to its first text in other pairs. Texts of equal cosines count as if they came before it."""
    first, second = np.moveaxis(_units(vectors), 1, 0)
    _, places, own = np.unique(numbers[:, 1], return_index=True, return_inverse=True)
    candidates, owners = second[places], _owners(numbers[:, 0], own)
    found = np.empty(len(numbers), np.int64)
    for start in range(0, len(numbers), _CHUNK_ROWS):
        rows = range(start, min(start + _CHUNK_ROWS, len(numbers)))
        scores = first[rows] @ candidates.T
        for row, line in zip(rows, scores, strict=True):
            best = line[own[row]]
            line[owners[numbers[row, 0]]] = -np.inf
            found[row] = 1 + int((line >= best).sum())
    return found


def _owners(firsts: Array, seconds: Array) -> dict[int, list[int]]:
    """The second texts that belong to each first text."""
    owners: dict[int, list[int]] = {}
    for first, second in zip(firsts.tolist(), seconds.tolist(), strict=True):
        owners.setdefault(first, []).append(second)
    return owners


def _units(vectors: Array) -> Array:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    found: Array = vectors / np.maximum(lengths, np.finfo(vectors.dtype).tiny)
    return found
