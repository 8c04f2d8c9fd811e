"""Export by OTLP over HTTP. The SDK reads endpoints, headers, sampler, batches and resource from the environment."""

import asyncio
import logging
import math
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version as release_of
from itertools import pairwise
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
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
from opentelemetry.sdk.resources import SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Tracer
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

from peltier_server.background import BackgroundTask
from peltier_server.metrics.metrics import Metrics
from peltier_server.settings import SettingsError
from peltier_server.telemetry.choice import TelemetryChoice

_NAME = "peltier"
_SCOPE = InstrumentationScope(_NAME)
_CUMULATIVE = AggregationTemporality.CUMULATIVE

logger = logging.getLogger(__name__)

_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
_DEFAULT_INTERVAL_MS = 60_000.0


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


class Otlp:
    """Exports the signals of `choice`. Spans leave in a thread of the SDK, and metrics are those of `/metrics`."""

    def __init__(self, choice: TelemetryChoice, metrics: Metrics) -> None:
        # A failed export is one record; each of its attempts would be another.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)
        resource = _resource()
        self._provider = _create_provider(resource) if choice.traces else None
        self._metrics = MetricsExport(metrics, resource) if choice.metrics else None
        self.tracer: Tracer | None = None
        if self._provider is not None:
            self.tracer = self._provider.get_tracer(_NAME, release_of("peltier"))

    def start(self) -> None:
        """Begins to export metrics periodically, in the running event loop."""
        if self._metrics is not None:
            self._metrics.start()

    async def close(self) -> None:
        """Exports what is left, and stops. Takes no longer than the timeouts of the exporters."""
        if self._metrics is not None:
            await self._metrics.close()
        if self._provider is not None:
            await asyncio.to_thread(self._provider.shutdown)


class MetricsExport:
    """Sends all metrics every `OTEL_METRIC_EXPORT_INTERVAL` milliseconds (60,000), and when it is closed. Belongs to
    the event loop."""

    def __init__(self, metrics: Metrics, resource: Resource) -> None:
        self._metrics = metrics
        self._resource = resource
        self._exporter = OTLPMetricExporter()
        self._interval_seconds = _interval_ms() / 1000
        self._started_at = time.time_ns()
        self._sending = BackgroundTask()

    def start(self) -> None:
        """Starts the periodic export."""
        self._sending.start(self._repeat())

    async def close(self) -> None:
        """Exports the last values."""
        if await self._sending.close():
            await self._export()
        await asyncio.to_thread(self._exporter.shutdown)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(self._interval_seconds)
            await self._export()

    async def _export(self) -> None:
        try:
            await asyncio.to_thread(self._send, self._metrics.families(), time.time_ns())
        except Exception:
            # Nothing else would notice if the task ended.
            logger.exception("the export of metrics failed")

    def _send(self, families: Sequence[Family], now: int) -> None:
        data = to_metrics_data(families, self._resource, self._started_at, now)
        # Logs a collector that does not answer.
        self._exporter.export(data)


def _resource() -> Resource:
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
    given = OTELResourceDetector().detect().attributes
    return Resource.create({"service.name": _NAME, SERVICE_VERSION: release_of("peltier"), **given})


def _create_provider(resource: Resource) -> TracerProvider:
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _interval_ms() -> float:
    given = os.environ.get(_INTERVAL, "").strip()
    try:
        interval = float(given or _DEFAULT_INTERVAL_MS)
    except ValueError:
        interval = 0.0
    if not 0 < interval < float("inf"):
        raise SettingsError(f"environment variable {_INTERVAL} is {given!r}: it must be a positive number")
    return interval
