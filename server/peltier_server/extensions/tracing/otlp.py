"""Export of traces by OTLP over HTTP. The SDK reads endpoint, headers, sampler and resource from the environment."""

import asyncio
import logging
from importlib.metadata import version as release_of

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

_NAME = "peltier"


class Otlp:
    """Exports spans in a thread of the SDK."""

    def __init__(self) -> None:
        # A failed export is one record; each of its attempts would be another.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
        given = OTELResourceDetector().detect().attributes
        resource = Resource.create({"service.name": _NAME, SERVICE_VERSION: release_of("peltier"), **given})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self.tracer = self._provider.get_tracer(_NAME, release_of("peltier"))

    async def close(self) -> None:
        """Export the remaining spans, and stop. Takes no longer than the timeout of the exporter."""
        await asyncio.to_thread(self._provider.shutdown)
