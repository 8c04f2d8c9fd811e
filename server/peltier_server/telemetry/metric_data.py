"""The metrics of `/metrics` in OpenTelemetry's data model, with the same names and labels."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

_SCOPE = InstrumentationScope("peltier")
_CUMULATIVE = AggregationTemporality.CUMULATIVE


def to_metrics_data(families: Iterable[Family], resource: Resource, started_at: int, now: int) -> MetricsData:
    """The families as they are at `now`; counts began at `started_at`. Both are nanoseconds since the epoch."""
    metrics = [metric for family in families if (metric := _MetricReader(family, started_at, now).metric()) is not None]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(_SCOPE, metrics, "")], "")])


class _MetricReader:
    """One family of Prometheus' library. The samples `…_created` have no counterpart."""

    def __init__(self, family: Family, started_at: int, now: int) -> None:
        self._family = family
        self._times = started_at, now

    def metric(self) -> Metric | None:
        """The metric, or None if it has no series yet."""
        data = self._data()
        if not data.data_points:
            return None
        # As Prometheus names it, so that a query reads both.
        name = f"{self._family.name}_total" if self._family.type == "counter" else self._family.name
        return Metric(name, self._family.documentation, "", data)

    def _data(self) -> Sum | Gauge | Histogram:
        if self._family.type == "histogram":
            return Histogram(list(self._histograms()), _CUMULATIVE)
        if self._family.type == "counter":
            return Sum(self._numbers("_total"), _CUMULATIVE, is_monotonic=True)
        return Gauge(self._numbers(""))

    def _numbers(self, suffix: str) -> list[NumberDataPoint]:
        name = self._family.name + suffix
        samples = [sample for sample in self._family.samples if sample.name == name]
        return [NumberDataPoint(sample.labels, *self._times, sample.value) for sample in samples]

    def _histograms(self) -> Iterator[HistogramDataPoint]:
        series = defaultdict[tuple[tuple[str, str], ...], list[Sample]](list)
        for sample in self._family.samples:
            series[tuple((name, value) for name, value in sample.labels.items() if name != "le")].append(sample)
        for labels, samples in series.items():
            yield self._histogram(dict(labels), samples)

    def _histogram(self, labels: dict[str, str], samples: Sequence[Sample]) -> HistogramDataPoint:
        buckets = [(float(one.labels["le"]), int(one.value)) for one in samples if one.name.endswith("_bucket")]
        (total,) = (one.value for one in samples if one.name.endswith("_sum"))
        counts = [after - before for before, after in pairwise([0, *(count for _, count in buckets)])]
        bounds = [bound for bound, _ in buckets if bound != math.inf]
        # Nobody keeps the least and the greatest value; None leaves them out of the message.
        unknown: Any = None
        return HistogramDataPoint(
            labels, *self._times, count=buckets[-1][1], sum=total, bucket_counts=counts, explicit_bounds=bounds,
            min=unknown, max=unknown,
        )  # fmt: skip
