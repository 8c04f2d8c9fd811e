"""Drift of the inputs and answers of versions: how far their recent distribution is from that of their first window."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from peltier_server.context import VersionLabels

# Rows of the first window, and of each half of the recent one.
WINDOW_ROWS = 500
_IDLE_SECONDS = 600.0
_SWEEP_SECONDS = 60.0
_TEXTS = {
    "peltier_answer_drift": "Population stability index of the recent labels against the first ones, by version",
    "peltier_input_drift": "Population stability index of the recent lengths of inputs against the first ones",
}


class Drift(NamedTuple):
    """The population stability indices of answers and of lengths of inputs; None before both windows are full."""

    answers: float | None
    inputs: float | None


class Window:
    """Counts of values: of the first window, and of the last one to two windows. `full` says whether both are there."""

    __slots__ = ("_before", "_num_rows", "_recent", "first")

    def __init__(self) -> None:
        self.first: dict[str | int, int] = {}
        self._before: dict[str | int, int] | None = None
        self._recent: dict[str | int, int] = {}
        self._num_rows = 0

    def add(self, value: str | int, rows: int = 1) -> None:
        """Counts a value of so many rows."""
        counts = self._recent
        counts[value] = counts.get(value, 0) + rows
        self._num_rows += rows
        if self._num_rows >= WINDOW_ROWS:
            if self.first:
                self._before = counts
            else:
                self.first = counts
            self._recent, self._num_rows = {}, 0

    @property
    def drift(self) -> float | None:
        """How far the recent values are from the first ones."""
        before = self._before
        if before is None:
            return None
        recent = self._recent
        return stability_index(self.first, {key: before.get(key, 0) + recent.get(key, 0) for key in {*before, *recent}})


def stability_index(first: Mapping[Any, int], recent: Mapping[Any, int]) -> float:
    """The population stability index of two counts: the sum of (p - q) ln(p / q) over all values, with half a row more
    of each, so that none is missing. Below 0.1 it is usually read as no change, above 0.25 as a clear one (Siddiqi,
    Credit Risk Scorecards, 2006)."""
    keys = {*first, *recent}
    sums = sum(first.values()) + len(keys) / 2, sum(recent.values()) + len(keys) / 2
    shares = [((first.get(key, 0) + 0.5) / sums[0], (recent.get(key, 0) + 0.5) / sums[1]) for key in keys]
    return math.fsum((p - q) * math.log(p / q) for p, q in shares)


class _Followed:
    __slots__ = ("answers", "inputs", "used_at")

    def __init__(self) -> None:
        self.answers, self.inputs, self.used_at = Window(), Window(), 0.0


class DriftMetrics(Collector):
    """Follows at most `max_versions` versions of this replica since its start. A version that was not asked for ten
    minutes gives its place to another. Belongs to the event loop; any thread may collect."""

    def __init__(
        self, registry: CollectorRegistry, max_versions: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_versions = max_versions
        self._clock = clock
        self._swept_at = -math.inf
        self._followed: dict[VersionLabels, _Followed] = {}
        registry.register(self)

    def observe(self, labels: VersionLabels, num_tokens: int, predictions: Sequence[Any]) -> None:
        """Counts the answers to a request, whose inputs have so many tokens together. Called for every request."""
        followed = self._followed.get(labels)
        if followed is None:
            followed = self._follow(labels)
            if followed is None:
                return
        followed.used_at = self._clock()
        rows = len(predictions)
        if not rows:
            return
        # Lengths by powers of two.
        followed.inputs.add((num_tokens // rows).bit_length(), rows)
        add = followed.answers.add
        for one in predictions:
            if type(one) is dict and (label := one.get("label")) is not None:
                add(label)

    def of(self, labels: VersionLabels) -> Drift:
        """The drift of a version."""
        followed = self._followed.get(labels)
        return Drift(None, None) if followed is None else Drift(followed.answers.drift, followed.inputs.drift)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The indices of the versions whose windows are full."""
        drifts = [(labels, self.of(labels)) for labels in list(self._followed)]
        for place, (name, text) in enumerate(_TEXTS.items()):
            family = GaugeMetricFamily(name, text, labels=VersionLabels._fields)
            for labels, drift in drifts:
                if (value := drift[place]) is not None:
                    family.add_metric(labels, value)
            yield family

    def _follow(self, labels: VersionLabels) -> _Followed | None:
        if len(self._followed) >= self._max_versions and not self._sweep():
            return None
        followed = self._followed[labels] = _Followed()
        return followed

    def _sweep(self) -> bool:
        """Forgets versions that were not asked for long; returns whether there is a place."""
        now = self._clock()
        if now - self._swept_at < _SWEEP_SECONDS:
            return False
        self._swept_at = now
        for labels in [one for one, own in self._followed.items() if now - own.used_at > _IDLE_SECONDS]:
            del self._followed[labels]
        return len(self._followed) < self._max_versions
