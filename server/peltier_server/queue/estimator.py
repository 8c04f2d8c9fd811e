"""Estimates the time of each kind of work, relative to a token of the plain backbone, from measured batches."""

import math
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple


class Work(NamedTuple):
    """The work of rows or of a batch, by kind. The unit is the multiply-adds of one token in the frozen blocks.

    `batch` is 1 for a batch, `tokens` the work in the frozen blocks, `products` the multiply-adds of adapters, `pairs`
    those of attention including prefix keys, `prefixes` the elements of keys and values that are copied for rows with
    a prefix, `weights` the elements that are read once for each adapter of a batch. For a decoding step `steps` is 1
    instead of `batch`.
    """

    batch: float = 0.0
    tokens: float = 0.0
    products: float = 0.0
    pairs: float = 0.0
    prefixes: float = 0.0
    weights: float = 0.0
    steps: float = 0.0


NO_WORK = Work()
# Measured on one core with MiniLM, except `steps`: 25 as for a batch, and more for reading the decoder's weights for
# few rows. The differences of a machine are learnt.
PRIORS = Work(batch=25.0, tokens=1.0, products=1.05, pairs=1.3, prefixes=70.0, weights=17.0, steps=40.0)
# A learnt factor is at most this many times its prior, and at least its prior divided by this.
MAX_CHANGE = 4.0
# The ratio of measured to expected time of a batch is limited to this, and to its inverse.
_MAX_TIME_RATIO = 3.0
# After about 350 more batches, a batch counts half. Each prior counts like one batch with only its kind of work.
_DECAY = 0.998
_PRIOR_BATCHES = 1.0
# The time of a token is an average over about this many seconds of computing. So one slow batch outweighs the average,
# and fast batches lower it step by step.
_RECENT_SECONDS = 0.1
_BATCHES_A_FIT = 32
_SWEEPS = 8


class Estimator:
    """Fits non-negative seconds for each kind of work, by least squares of the relative errors of recent batches.

    `factors` are the costs of a unit of each kind, in tokens. They stay within `MAX_CHANGE` of their priors. A kind
    that the batches do not distinguish from others keeps its prior. One thread observes; any thread may read.

    `seconds_per_token` is the recent time of a token of the plain backbone, for work in tokens by the `factors`. It is
    infinite before the first batch.
    """

    def __init__(self) -> None:
        self.factors = self._scaled = PRIORS
        size = len(PRIORS)
        self._products = [[0.0] * size for _ in range(size)]
        self._targets = [0.0] * size
        self._seconds = self._expected = 0.0
        self._recent_seconds = self._recent_tokens = 0.0
        self.seconds_per_token = math.inf
        self._num_observed = 0

    def observe(self, work: Work, seconds: float) -> None:
        """Learns from a batch with this work and time."""
        self._follow(_dot(work, self.factors), seconds)
        expected = _dot(work, PRIORS)
        self._seconds = _DECAY * self._seconds + seconds
        self._expected = _DECAY * self._expected + expected
        if not (expected > 0 and 0 < self._seconds < float("inf")):
            return
        time_ratio = seconds / expected * self._expected / self._seconds
        share = [amount / expected for amount in work]
        self._add(share, min(max(time_ratio, 1 / _MAX_TIME_RATIO), _MAX_TIME_RATIO))
        self._num_observed += 1
        if self._num_observed % _BATCHES_A_FIT == 0:
            self.factors = self._fit()

    def _follow(self, tokens: float, seconds: float) -> None:
        kept = math.exp(-seconds / _RECENT_SECONDS)
        self._recent_seconds = kept * self._recent_seconds + seconds
        self._recent_tokens = kept * self._recent_tokens + tokens
        if self._recent_tokens:
            self.seconds_per_token = self._recent_seconds / self._recent_tokens

    def _add(self, share: Sequence[float], time_ratio: float) -> None:
        for row, amount in enumerate(share):
            self._targets[row] = _DECAY * self._targets[row] + amount * time_ratio
            self._products[row] = [
                _DECAY * old + amount * other for old, other in zip(self._products[row], share, strict=True)
            ]

    def _fit(self) -> Work:
        """Coordinate descent from the previous solution; the factor of tokens is 1 by definition."""
        factors = list(self._scaled)
        for _ in range(_SWEEPS):
            for kind, prior in enumerate(PRIORS):
                row = self._products[kind]
                others = _dot(row, factors) - row[kind] * factors[kind]
                pull = _PRIOR_BATCHES / prior**2
                best = (self._targets[kind] - others + pull * prior) / (row[kind] + pull)
                factors[kind] = min(max(best, prior / MAX_CHANGE), prior * MAX_CHANGE)
        self._scaled = Work(*factors)
        return Work(
            *(_bounded(factor / self._scaled.tokens, prior) for factor, prior in zip(factors, PRIORS, strict=True))
        )


def _bounded(factor: float, prior: float) -> float:
    return min(max(factor, prior / MAX_CHANGE), prior * MAX_CHANGE)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    total: float = sum(map(mul, left, right))
    return total
