"""Drift of the inputs and answers of versions: how far their recent distribution is from that of their first window."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from peltier_server.context import VersionLabels
from peltier_server.metrics.series import VersionWindows, Window

_TEXTS = {
    "peltier_answer_drift": "Population stability index of the recent labels against the first ones, by version",
    "peltier_input_drift": "Population stability index of the recent lengths of inputs against the first ones",
}


class Drift(NamedTuple):
    """The population stability indices of answers and of lengths of inputs; None before both windows are full."""

    answers: float | None
    inputs: float | None


class DriftMetrics(Collector):
    """The drift of the versions in `windows`. Any thread may read it."""

    def __init__(self, registry: CollectorRegistry, windows: VersionWindows) -> None:
        self._windows = windows
        registry.register(self)

    def of(self, labels: VersionLabels) -> Drift:
        """The drift of a version."""
        followed = self._windows.followed.get(labels)
        return Drift(None, None) if followed is None else Drift(_index(followed.answers), _index(followed.inputs))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The indices of the versions whose windows are full."""
        drifts = [(labels, self.of(labels)) for labels in list(self._windows.followed)]
        for place, (name, text) in enumerate(_TEXTS.items()):
            family = GaugeMetricFamily(name, text, labels=VersionLabels._fields)
            for labels, drift in drifts:
                if (value := drift[place]) is not None:
                    family.add_metric(labels, value)
            yield family


def _index(window: Window) -> float | None:
    recent = window.recent
    return None if recent is None else stability_index(window.first, recent)


def stability_index(first: Mapping[Any, int], recent: Mapping[Any, int]) -> float:
    """The population stability index of two counts: the sum of (p - q) ln(p / q) over all values, with half a row more
    of each, so that none is missing. Below 0.1 it is usually read as no change, above 0.25 as a clear one (Siddiqi,
    Credit Risk Scorecards, 2006)."""
    keys = {*first, *recent}
    sums = sum(first.values()) + len(keys) / 2, sum(recent.values()) + len(keys) / 2
    shares = [((first.get(key, 0) + 0.5) / sums[0], (recent.get(key, 0) + 0.5) / sums[1]) for key in keys]
    return math.fsum((p - q) * math.log(p / q) for p, q in shares)
