"""Export by OTLP over HTTP. The SDK reads endpoints, headers, sampler, batches and resource from the environment."""

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from importlib.metadata import version as release_of

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer
from prometheus_client.metrics_core import Metric

from peltier_server.metrics.metrics import Metrics
from peltier_server.settings import SettingsError
from peltier_server.telemetry.choice import TelemetryChoice
from peltier_server.telemetry.metric_data import to_metrics_data

logger = logging.getLogger(__name__)

_SCOPE = "peltier"
_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
_DEFAULT_INTERVAL_MS = 60_000.0


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
            self.tracer = self._provider.get_tracer(_SCOPE, release_of("peltier"))

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
        self._sending: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the periodic export."""
        self._sending = asyncio.create_task(self._repeat())

    async def close(self) -> None:
        """Exports the last values."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
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

    def _send(self, families: Sequence[Metric], now: int) -> None:
        data = to_metrics_data(families, self._resource, self._started_at, now)
        # Logs a collector that does not answer.
        self._exporter.export(data)


def _resource() -> Resource:
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
    given = OTELResourceDetector().detect().attributes
    return Resource.create({"service.name": _SCOPE, SERVICE_VERSION: release_of("peltier"), **given})


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
