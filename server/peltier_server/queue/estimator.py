"""How much time each kind of work takes beside a token of the plain backbone, learnt from measured batches."""

from collections.abc import Sequence
from typing import NamedTuple


class Work(NamedTuple):
    """What rows or a batch make a device do, each kind in units of one token's multiply-adds in the frozen blocks.

    `batch` is 1 for each batch, `tokens` are those of the frozen blocks, `products` an adapter's own multiply-adds,
    `pairs` those of attention, prefix keys included, `prefixes` the elements of keys and values that are laid out for
    rows with a prefix, `weights` the elements that are read once for each adapter of a batch. For each step that writes
    a token of every text `steps` is 1 in place of `batch`.
    """

    batch: float = 0.0
    tokens: float = 0.0
    products: float = 0.0
    pairs: float = 0.0
    prefixes: float = 0.0
    weights: float = 0.0
    steps: float = 0.0


NO_WORK = Work()
# Measured on one core with MiniLM, but for `steps`: a batch's own 25, and some more for a decoder's weights, which
# few rows make a device read. What a machine differs by is learnt.
PRIORS = Work(batch=25.0, tokens=1.0, products=1.05, pairs=1.3, prefixes=70.0, weights=17.0, steps=40.0)
# A factor that is learnt stays within this many times its prior, either way.
MAX_CHANGE = 4.0
# A batch whose time is further from what was expected than this counts as if it were so far.
_MAX_SURPRISE = 3.0
# A batch counts half after about 350 more; each prior counts like one batch of its kind alone.
_KEPT = 0.998
_PRIOR_BATCHES = 1.0
_BATCHES_A_FIT = 8
_SWEEPS = 8


class Estimator:
    """Fits non-negative seconds for each kind of work, by least squares of relative errors over the batches of late.

    `factors` says what a unit of each kind costs in tokens. Whatever is observed, they stay within `MAX_CHANGE` of
    their priors; a kind that no batch tells apart from others keeps its prior. One thread observes; any may read.
    """

    def __init__(self) -> None:
        self.factors = self._scaled = PRIORS
        size = len(PRIORS)
        self._products = [[0.0] * size for _ in range(size)]
        self._targets = [0.0] * size
        self._seconds = self._expected = 0.0
        self._num_observed = 0

    @property
    def seconds_per_token(self) -> float:
        """What a token of the plain backbone has taken of late; 0 before a batch has been observed."""
        return self._scaled.tokens * self._seconds / self._expected if self._expected else 0.0

    def observe(self, work: Work, seconds: float) -> None:
        """A batch of so much work has taken so long."""
        expected = _dot(work, PRIORS)
        self._seconds = _KEPT * self._seconds + seconds
        self._expected = _KEPT * self._expected + expected
        if not (expected > 0 and 0 < self._seconds < float("inf")):
            return
        surprise = seconds / expected * self._expected / self._seconds
        share = [one / expected for one in work]
        self._add(share, min(max(surprise, 1 / _MAX_SURPRISE), _MAX_SURPRISE))
        self._num_observed += 1
        if self._num_observed % _BATCHES_A_FIT == 0:
            self.factors = self._fit()

    def _add(self, share: Sequence[float], surprise: float) -> None:
        for row, one in enumerate(share):
            self._targets[row] = _KEPT * self._targets[row] + one * surprise
            self._products[row] = [
                _KEPT * old + one * other for old, other in zip(self._products[row], share, strict=True)
            ]

    def _fit(self) -> Work:
        """Coordinate descent from where it ended last; the tokens' own factor is 1 by definition."""
        factors = list(self._scaled)
        for _ in range(_SWEEPS):
            for kind, prior in enumerate(PRIORS):
                row = self._products[kind]
                others = _dot(row, factors) - row[kind] * factors[kind]
                pull = _PRIOR_BATCHES / prior**2
                best = (self._targets[kind] - others + pull * prior) / (row[kind] + pull)
                factors[kind] = min(max(best, prior / MAX_CHANGE), prior * MAX_CHANGE)
        self._scaled = Work(*factors)
        return Work(*(_bounded(one / self._scaled.tokens, prior) for one, prior in zip(factors, PRIORS, strict=True)))


def _bounded(factor: float, prior: float) -> float:
    return min(max(factor, prior / MAX_CHANGE), prior * MAX_CHANGE)


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
