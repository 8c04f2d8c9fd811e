"""The metrics of ranking."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn import metrics as sk

Array = np.ndarray[Any, Any]
_MAX_RANK = 10


def ranking(scores: Array, targets: Array) -> dict[str, float]:
    """`mrr` and `ndcg@10` as means over queries with a relevant document. `scores` [rows]; `targets` [rows, 2] are the
    relevance of each document, and the number of its query.

    A document is relevant if its relevance is above 0. The reciprocal rank is that of the first relevant document;
    documents of equal scores count as if the relevant ones came last. The gain of a document is its relevance
    (Järvelin and Kekäläinen 2002)."""
    found = [(_reciprocal_rank(*query), _gain(*query)) for query in _queries(scores, targets)]
    ranks, gains = np.mean(found, axis=0) if found else (0.0, 0.0)
    return {"mrr": float(ranks), "ndcg@10": float(gains)}


def _queries(scores: Array, targets: Array) -> Iterator[tuple[Array, Array]]:
    order = np.argsort(targets[:, 1], kind="stable")
    ends = np.flatnonzero(np.diff(targets[order, 1])) + 1
    for rows in np.split(order, ends):
        if (targets[rows, 0] > 0).any():
            yield scores[rows], targets[rows, 0]


def _reciprocal_rank(scores: Array, relevance: Array) -> float:
    best = scores[relevance > 0].max()
    before = (scores > best).sum() + ((scores == best) & (relevance == 0)).sum()
    return float(1 / (before + 1))


def _gain(scores: Array, relevance: Array) -> float:
    if len(scores) == 1:  # scikit-learn has no gain of one document
        return 1.0
    return float(sk.ndcg_score(relevance[None], scores[None], k=_MAX_RANK))
