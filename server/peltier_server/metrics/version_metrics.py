"""Requests and latencies by adapter version, with a bounded number of series."""

import time
from collections.abc import Callable, Mapping
from heapq import nlargest

from prometheus_client import CollectorRegistry, Counter

from peltier_server.context import VersionLabels
from peltier_server.metrics.histogram import Histogram, Series
from peltier_server.metrics.labels import LabelSlots

# Few buckets, because every version has a series for each.
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
_TURN_SECONDS = 60.0
_HALF_LIFE_SECONDS = 600.0

# Requests of versions by status, and their latency.
BusyVersions = Mapping[VersionLabels, tuple[Mapping[str, int], Series]]


# Never the labels of a version, because its number is no integer.
OTHER = VersionLabels("other", "other", "other")


class VersionMetrics:
    """A counter by status and a histogram for each of the `max_versions` versions with most recent requests; all others
    share the series of `OTHER`.

    A request is counted once, in the series that its version has at that time. If a version loses its series to a
    version with more requests, the series end, as those of a stopped server do. Their counts are not added to `OTHER`,
    because that would look like new requests. So no series ever decreases, and `OTHER` never jumps. A version that gets
    series again begins at 0, which Prometheus treats as a restart. Belongs to the event loop.
    """

    def __init__(
        self, registry: CollectorRegistry, max_versions: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        names = VersionLabels._fields
        self._requests = Counter(
            "peltier_adapter_requests_total",
            "Answered requests, by adapter version",
            (*names, "code"),
            registry=registry,
        )
        self._seconds = Histogram(
            "peltier_adapter_request_seconds",
            "From a request to the end of its answer, by adapter version",
            _SECONDS,
            names,
            registry,
        )
        self._slots = LabelSlots[VersionLabels](max_versions)
        self._series: dict[VersionLabels, _Series] = {}
        self._clock = clock
        self._turned_at = clock()

    def observe(self, labels: VersionLabels, code: int, seconds: float) -> None:
        """A request for this version has been answered."""
        own = labels if self._slots.use(labels) else OTHER
        series = self._series.get(own)
        if series is None:
            series = self._series[own] = _Series(self._requests, self._seconds, own)
        series.observe(code, seconds)

    def busiest(self, max_versions: int) -> BusyVersions:
        """The versions whose series have most requests, the first one most: their requests by status, and the latency
        of these."""
        chosen = nlargest(max_versions, self._series.items(), key=lambda one: one[1].num_requests)
        return {labels: (series.answers(), series.latency) for labels, series in chosen}

    def turn_over(self) -> None:
        """Gives series to the versions in use, at most once a minute. Call it after a scrape, which has then
        read the last values of the series that end."""
        now = self._clock()
        elapsed = now - self._turned_at
        if elapsed < _TURN_SECONDS:
            return
        self._turned_at = now
        for labels in self._slots.turn_over(0.5 ** (elapsed / _HALF_LIFE_SECONDS)):
            if labels in self._series:
                self._series.pop(labels).end()


class _Series:
    """The series of one version, looked up once."""

    def __init__(self, requests: Counter, seconds: Histogram, labels: VersionLabels) -> None:
        self._requests = requests
        self._seconds = seconds
        self._labels = labels
        self._of_code: dict[int, Counter] = {}
        self._answers: dict[int, int] = {}
        self.latency = seconds.labels(*labels)

    def observe(self, code: int, seconds: float) -> None:
        counter = self._of_code.get(code)
        if counter is None:
            counter = self._of_code[code] = self._requests.labels(*self._labels, code)
        counter.inc()
        # Counted again, because the library reads its counters only all together.
        self._answers[code] = self._answers.get(code, 0) + 1
        self.latency.observe(seconds)

    @property
    def num_requests(self) -> int:
        return sum(self._answers.values())

    def answers(self) -> Mapping[str, int]:
        """Requests by status."""
        return {str(code): count for code, count in self._answers.items()}

    def end(self) -> None:
        for code in self._of_code:
            self._requests.remove(*self._labels, code)
        self._seconds.remove(*self._labels)
