"""Histograms that are cheap to observe."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


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

    def quantile(self, share: float) -> float:
        """The value below which this share of the observations is, interpolated in its bucket as Prometheus does: at
        most the last bound. 0 without observations."""
        rank, below, lower = share * sum(self.counts), 0, 0.0
        for upper, count in zip(self.bounds, self.counts, strict=False):
            if count and below + count >= rank:
                return lower + (upper - lower) * (rank - below) / count
            below, lower = below + count, upper
        return lower if below < rank else 0.0


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
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        for values, series in list(self._series.items()):
            family.add_metric(values, list(zip(names, accumulate(series.counts), strict=True)), series.total)
        yield family
