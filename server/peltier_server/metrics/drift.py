"""Drift of the inputs and answers of versions: how far their recent distribution is from that of their first window."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from peltier_server.context import VersionLabels
from peltier_server.metrics.series import WINDOW_ROWS, FollowedVersion, VersionWindows, Window

_TEXTS = {
    "peltier_answer_drift": "Population stability index of the recent answers against the first ones, by version",
    "peltier_input_drift": "Population stability index of the recent inputs against the first ones, by version",
}
_FEEDBACK_TEXT = "Feedback that this replica took to answers of a version: right or wrong"
# Numbers of the vector of an input, a byte each.
VECTOR_BYTES = 32
# From here on a change is read as a clear one.
_CLEAR_INDEX = 0.25
# The quantile of the normal distribution that equal distributions exceed once in ten thousand times.
_NOISE_QUANTILE = 3.72
# Versions are compared again after so many seconds, because callers may ask at any rate.
_FRESH_SECONDS = 10.0


class Drift(NamedTuple):
    """The population stability indices of answers and of inputs; None before both windows are full. That of inputs is
    the larger one of their lengths and of their vectors."""

    answers: float | None
    inputs: float | None


class DriftMetrics(Collector):
    """The drift of the versions in `windows`. Any thread may read it."""

    def __init__(
        self, registry: CollectorRegistry, windows: VersionWindows, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._windows = windows
        self._clock = clock
        self._drifting: Sequence[tuple[VersionLabels, Drift]] = ()
        self._compared_at = -math.inf
        registry.register(self)

    def of(self, labels: VersionLabels) -> Drift:
        """The drift of a version."""
        followed = self._windows.followed.get(labels)
        if followed is None:
            return Drift(None, None)
        inputs = [index for index in (_index(followed.inputs), followed.distance) if index is not None]
        return Drift(_index(followed.answers), max(inputs, default=None))

    def drifting(self) -> Sequence[tuple[VersionLabels, Drift]]:
        """The versions with a clear drift, the largest one first, as they were within the last ten seconds. A drift is
        clear if the index is 0.25 at least and more than chance explains."""
        now = self._clock()
        if now - self._compared_at >= _FRESH_SECONDS:
            found = [
                (labels, self.of(labels)) for labels, own in list(self._windows.followed.items()) if _is_clear(own)
            ]
            self._drifting = sorted(found, key=lambda one: -max(index or 0.0 for index in one[1]))
            self._compared_at = now
        return self._drifting

    def collect(self) -> Iterator[Metric]:
        """The indices of the versions whose windows are full, and the feedback to those that got some."""
        drifts = [(labels, self.of(labels)) for labels in list(self._windows.followed)]
        for place, (name, text) in enumerate(_TEXTS.items()):
            family = GaugeMetricFamily(name, text, labels=VersionLabels._fields)
            for labels, drift in drifts:
                if (value := drift[place]) is not None:
                    family.add_metric(labels, value)
            yield family
        yield self._feedback()

    def _feedback(self) -> CounterMetricFamily:
        family = CounterMetricFamily(
            "peltier_adapter_feedback", _FEEDBACK_TEXT, labels=(*VersionLabels._fields, "result")
        )
        for labels, followed in list(self._windows.followed.items()):
            if followed.right + followed.wrong:
                family.add_metric((*labels, "right"), followed.right)
                family.add_metric((*labels, "wrong"), followed.wrong)
        return family


def _index(window: Window) -> float | None:
    recent = window.recent
    return None if recent is None else stability_index(window.first, recent)


def _is_clear(followed: FollowedVersion) -> bool:
    windows = (followed.answers, followed.inputs)
    if followed.distance is not None and followed.distance >= CLEAR_DISTANCE:
        return True
    return any((index := _index(window)) is not None and index >= _clear_index(window) for window in windows)


def _clear_index(window: Window) -> float:
    """The index from which a drift is clear.

    (p - q) ln(p / q) is close to (p - q)² / p, so the index of two samples of one distribution, of n and m rows with k
    values, is distributed like (1/n + 1/m) times chi-square with k - 1 degrees of freedom. Of 77 labels and 500 rows
    it is 0.3 on average. The quantile of chi-square is that of Wilson and Hilferty (The
    distribution of chi-square, 1931).
    """
    recent = window.recent or {}
    rows, degrees = (sum(window.first.values()), sum(recent.values())), len({*window.first, *recent}) - 1
    return _clear_at(degrees, *rows)


def _clear_at(degrees: int, first_rows: float, recent_rows: float) -> float:
    """The index from which on a change is clear, for samples of these sizes with these degrees of freedom."""
    if degrees < 1:
        return _CLEAR_INDEX
    spread = 2 / (9 * degrees)
    chance = degrees * (1 - spread + _NOISE_QUANTILE * math.sqrt(spread)) ** 3
    return max(_CLEAR_INDEX, chance * (1 / first_rows + 1 / recent_rows))


# From here on a distance between two windows of vectors is clear.
CLEAR_DISTANCE = _clear_at(VECTOR_BYTES, WINDOW_ROWS, WINDOW_ROWS)


def mean_distance(first: Sequence[bytes], recent: Sequence[bytes]) -> float:
    """The population stability index of two samples of vectors, as that of two normal distributions: with means a and b
    and one covariance C it is (a - b)' C⁻¹ (a - b), the squared distance of Mahalanobis (1936). C is pooled from both
    samples. Of two samples of one distribution, of n and m rows of k numbers, it is Hotelling's statistic times
    1/n + 1/m, so about chi-square with k degrees of freedom times this (The generalization of Student's ratio, 1931).
    """
    samples = [np.stack([np.frombuffer(one, np.uint8) for one in rows]).astype(float) for rows in (first, recent)]
    apart = samples[0].mean(axis=0) - samples[1].mean(axis=0)
    centred = np.concatenate([sample - sample.mean(axis=0) for sample in samples])
    # A number that hardly varies is rounded to bytes, so it varies by 1/12 at least.
    pooled = centred.T @ centred / (len(centred) - 2) + np.eye(len(apart)) / 12
    return float(apart @ np.linalg.solve(pooled, apart))


def stability_index(first: Mapping[Any, float], recent: Mapping[Any, float]) -> float:
    """The population stability index of two counts: the sum of (p - q) ln(p / q) over all values, with half a row more
    of each, so that none is missing. Below 0.1 it is usually read as no change, above 0.25 as a clear one; du
    Pisanie and others review it (arXiv 2303.01227)."""
    keys = {*first, *recent}
    sums = sum(first.values()) + len(keys) / 2, sum(recent.values()) + len(keys) / 2
    shares = [((first.get(key, 0) + 0.5) / sums[0], (recent.get(key, 0) + 0.5) / sums[1]) for key in keys]
    return math.fsum((p - q) * math.log(p / q) for p, q in shares)
