"""Metrics of rankings, defined as in `peltier evaluate` but without its libraries."""

import math
from collections.abc import Sequence
from itertools import groupby

_MAX_RANK = 10


def reciprocal_rank(relevance: Sequence[float], scores: Sequence[float]) -> float:
    """That of the first relevant document of a query; of equal scores the relevant documents count as the last."""
    best = max(score for score, grade in zip(scores, relevance, strict=True) if grade > 0)
    before = sum(
        score > best or (score == best and not grade > 0) for score, grade in zip(scores, relevance, strict=True)
    )
    return 1 / (before + 1)


def gain(relevance: Sequence[float], scores: Sequence[float]) -> float:
    """The normalised discounted cumulative gain of a query's first ten documents. Equal scores share their gain."""
    return _discounted(relevance, scores) / _discounted(relevance, relevance)


def _discounted(relevance: Sequence[float], scores: Sequence[float]) -> float:
    total, rank = 0.0, 0
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    for _, run in groupby(order, key=lambda place: scores[place]):
        grades = [relevance[place] for place in run]
        discounts = [1 / math.log2(own + 2) for own in range(rank, min(rank + len(grades), _MAX_RANK))]
        total += math.fsum(grades) / len(grades) * math.fsum(discounts)
        rank += len(grades)
    return total
