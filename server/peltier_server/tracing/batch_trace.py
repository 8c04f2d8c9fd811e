"""The span of a batch, which links those of its requests: one batch has many of them."""

import time
from collections.abc import Iterable, Mapping

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext

from peltier_server.tracing.request_trace import RequestTrace

# The most links that a span keeps by default (OTEL_SPAN_LINK_COUNT_LIMIT).
_MAX_LINKS = 128


class BatchTrace:
    """A span in a trace of its own, from its creation to `end`."""

    __slots__ = ("_span",)

    def __init__(self, traces: Iterable[RequestTrace], attributes: Mapping[str, int]) -> None:
        """`traces` has at least one, and a request may be among them several times."""
        requests = dict.fromkeys(traces)
        links = [Link(trace.span_context) for trace in list(requests)[:_MAX_LINKS]]
        tracer = next(iter(requests)).tracer
        self._span: Span = tracer.start_span(
            "batch", Context(), attributes={**attributes, "peltier.batch.requests": len(requests)}, links=links,
            start_time=time.time_ns(),
        )  # fmt: skip

    @property
    def span_context(self) -> SpanContext:
        """The identity of the batch's span."""
        return self._span.get_span_context()

    def end(self, num_failed: int) -> None:
        """The batch has been computed, without an output for `num_failed` rows."""
        self._span.set_attribute("peltier.batch.failed_rows", num_failed)
        self._span.end()
