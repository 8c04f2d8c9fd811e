"""Time series of the metrics: cheap histograms, and labels that are bounded in number."""

import time
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from heapq import nlargest, nsmallest
from itertools import accumulate
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from starlette.types import Scope

from peltier_server.context import VersionLabels

K = TypeVar("K", bound=Hashable)

# A key replaces another only if it was used this many times as much, so that similar keys do not alternate.
_CLEARLY_MORE = 2.0
# At most this share of the slots changes at a time, because each change makes new time series in Prometheus.
_TURNOVER_SHARE = 0.1
# Old uses count less; below this a key is forgotten.
_MIN_USES = 0.01
# The uses of at most so many keys are counted for each slot.
_MAX_KEYS_PER_SLOT = 100
_MAX_TENANTS = 100
# Not valid names of tenants, which begin with a letter or digit.
_OTHERS = "_others"
_NOBODY = "_nobody"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# No path of a route equals this, because all contain a slash.
_NO_ROUTE = "none"
_NO_METHOD = "other"

_number: Callable[[float], str] = floatToGoString
_STEPS = (1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.4, 8)
# From 0.1 ms to 80 s. Each bound is at most 1.28 times the one before, so that a percentile between them is off by less
# than 28 %.
FINE_SECONDS = tuple(sorted({30.0, *(float(f"{step}e{power}") for power in range(-4, 2) for step in _STEPS)}))
# Few buckets, because every version has a series for each.
VERSION_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
_TURN_SECONDS = 60.0
# So that whoever scrapes once a minute reads the last values of a series that ends, whoever else reads the page.
_ENDING_SECONDS = 120.0
_HALF_LIFE_SECONDS = 600.0

# Never the labels of a version, because its number is no integer.
OTHER = VersionLabels("other", "other", "other")


class Series:
    """The observations with one set of labels. One thread observes; any thread may read."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Counts a value, once or several times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += times * value


class Histogram(Collector):
    """Counts of values up to each of `bounds`, by labels.

    The library's own histogram takes two locks for each value, and ten times as long. Every request is counted in
    several histograms, and every row in one.
    """

    def __init__(
        self, name: str, text: str, bounds: Sequence[float], labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        self._name, self._text = name, text
        self._bounds, self.label_names = bounds, labels
        self._bound_names = [*map(_number, bounds), "+Inf"]
        self._series: dict[tuple[str, ...], Series] = {}
        if not labels:
            self.labels()
        registry.register(self)

    def labels(self, *values: str) -> Series:
        """The series with these values of the labels."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = Series(self._bounds)
        return series

    def remove(self, *values: str) -> None:
        """Ends a series."""
        self._series.pop(values, None)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """All series, for the registry."""
        family = HistogramMetricFamily(self._name, self._text, labels=self.label_names)
        for values, series in list(self._series.items()):
            buckets = list(zip(self._bound_names, accumulate(series.counts), strict=True))
            family.add_metric(values, buckets, series.total)
        yield family


class LabelSlots(Generic[K]):
    """At most `max_slots` keys have a slot. A key gets a free slot at its first use. If all slots are taken, they stay
    unchanged until `turn_over` gives those of the least used keys to keys that were clearly used more. Uses are counted
    for at most a hundred times as many keys; beyond that, the least used ones are forgotten.

    Any thread may call `use`, but not during `turn_over`.
    """

    def __init__(self, max_slots: int) -> None:
        self._max_slots = max_slots
        self._held: set[K] = set()
        self._uses: dict[K, float] = {}

    @property
    def held(self) -> frozenset[K]:
        """The keys that have a slot."""
        return frozenset(self._held)

    @property
    def are_taken(self) -> bool:
        """Whether no slot is free."""
        return len(self._held) >= self._max_slots

    def use(self, key: K) -> bool:
        """Counts a use of `key`; returns whether it has a slot."""
        self._uses[key] = self._uses.get(key, 0.0) + 1.0
        if len(self._uses) > _MAX_KEYS_PER_SLOT * self._max_slots:
            self._forget()
        if key in self._held:
            return True
        if self.are_taken:
            return False
        self._held.add(key)
        return True

    def turn_over(self, worth: float) -> frozenset[K]:
        """Replaces keys; returns those that lost their slots. From now on, earlier uses count `worth` times as much."""
        lost = self._exchange() if self.are_taken else frozenset()
        self._uses = {key: uses * worth for key, uses in self._uses.items() if uses * worth >= _MIN_USES}
        return lost

    def _forget(self) -> None:
        """Keeps the counts of half as many keys as there may be, so that this happens rarely."""
        kept = nlargest(_MAX_KEYS_PER_SLOT * self._max_slots // 2, list(self._uses.items()), key=itemgetter(1))
        self._uses = dict(kept)

    def _exchange(self) -> frozenset[K]:
        max_changed = max(1, int(_TURNOVER_SHARE * self._max_slots))
        weakest = nsmallest(max_changed, self._held, key=self._recent_uses)
        strongest = nlargest(max_changed, self._uses.keys() - self._held, key=self._recent_uses)
        pairs = [
            (old, new)
            for old, new in zip(weakest, strongest, strict=False)
            if self._recent_uses(new) > _CLEARLY_MORE * self._recent_uses(old)
        ]
        lost = frozenset(old for old, _ in pairs)
        self._held = (self._held - lost) | {new for _, new in pairs}
        return lost

    def _recent_uses(self, key: K) -> float:
        return self._uses.get(key, 0.0)


class TenantLabels:
    """The first hundred tenants have labels of their own. All others share a label, and so do callers without a key.

    The number is bounded because each label makes a time series of every metric that has it. A tenant keeps its label,
    because its usage is summed over days, so its series must not end.
    """

    def __init__(self, max_labels: int = _MAX_TENANTS) -> None:
        self._slots = LabelSlots[str](max_labels)

    @property
    def known(self) -> tuple[str, ...]:
        """Every label in use."""
        return (*self._slots.held, *((_OTHERS,) if self._slots.are_taken else ()))

    def of(self, tenant: str | None) -> str:
        """The label of `tenant`; None is a caller without a key."""
        if tenant is None:
            return _NOBODY
        return tenant if self._slots.use(tenant) else _OTHERS


class MatchedRoute(NamedTuple):
    """A method and the template of a path, such as `/v1/tasks/{task}/predict`, not the caller's path."""

    method: str
    path: str


def matched_route(scope: Scope) -> MatchedRoute:
    """The route of the request; its path is "none" if the request was refused before, or for an unknown path."""
    method = scope["method"]
    path = getattr(scope.get("route"), "path", _NO_ROUTE)
    return MatchedRoute(method if method in _METHODS else _NO_METHOD, path)


class VersionMetrics:
    """A counter by status and a histogram for each of the `max_versions` versions with most recent requests; all others
    share the series of `OTHER`.

    A request is counted once, in the series that its version has at that time. If a version loses its series to a
    version with more requests, the series stay as they are for two minutes and then end, as those of a stopped server
    do. Their counts are not added to `OTHER`, because that would look like new requests. So no series ever decreases,
    and `OTHER` never jumps. A version that gets series again after their end begins at 0, which Prometheus treats as a
    restart. Belongs to the event loop.
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
            VERSION_SECONDS,
            names,
            registry,
        )
        self._registry = registry
        self._counters = list[Counter]()
        self._slots = LabelSlots[VersionLabels](max_versions)
        self._series: dict[VersionLabels, _VersionSeries] = {}
        self._lost_at: dict[VersionLabels, float] = {}
        self._clock = clock
        self._turned_at = clock()

    def observe(self, labels: VersionLabels, code: int, seconds: float) -> None:
        """A request for this version has been answered."""
        own = labels if self._slots.use(labels) else OTHER
        series = self._series.get(own)
        if series is None:
            series = self._series[own] = _VersionSeries(self._requests, self._seconds, own)
        series.observe(code, seconds)

    def counter(self, name: str, text: str, label: str) -> Callable[[VersionLabels, str], None]:
        """Adds a counter by version and one more label; what is returned counts. Its series are those of the versions
        that have series here."""
        counter = Counter(name, text, (*VersionLabels._fields, label), registry=self._registry)
        self._counters.append(counter)

        def count(version: VersionLabels, value: str) -> None:
            own = version if self._slots.use(version) else OTHER
            counter.labels(*own, value).inc()

        return count

    def turn_over(self) -> None:
        """Gives series to the versions in use, at most once a minute, and ends those that were lost two minutes ago."""
        now = self._clock()
        elapsed = now - self._turned_at
        if elapsed < _TURN_SECONDS:
            return
        self._turned_at = now
        self._lost_at |= dict.fromkeys(self._slots.turn_over(0.5 ** (elapsed / _HALF_LIFE_SECONDS)), now)
        for labels, lost_at in list(self._lost_at.items()):
            if labels in self._slots.held:
                del self._lost_at[labels]
            elif now - lost_at >= _ENDING_SECONDS:
                del self._lost_at[labels]
                self._end(labels)

    def _end(self, labels: VersionLabels) -> None:
        if labels in self._series:
            self._series.pop(labels).end()
        for counter in self._counters:
            counter.remove_by_labels(labels._asdict())


class _VersionSeries:
    """The series of one version, looked up once."""

    def __init__(self, requests: Counter, seconds: Histogram, labels: VersionLabels) -> None:
        self._requests = requests
        self._seconds = seconds
        self._labels = labels
        self._of_code: dict[int, Counter] = {}
        self._latency = seconds.labels(*labels)

    def observe(self, code: int, seconds: float) -> None:
        counter = self._of_code.get(code)
        if counter is None:
            counter = self._of_code[code] = self._requests.labels(*self._labels, code)
        counter.inc()
        self._latency.observe(seconds)

    def end(self) -> None:
        for code in self._of_code:
            self._requests.remove(*self._labels, code)
        self._seconds.remove(*self._labels)
