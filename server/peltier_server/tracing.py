"""Spans of requests and batches. Without a tracer none of it is created."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer, set_span_in_context

# A mixed request has several spans for each of its parts.
_MAX_SPANS = 256
# A reference to a task is shorter. Spans wait in memory for the collector, and a caller may send any text.
_MAX_TASK_LEN = 200
_NANO = 1_000_000_000

# The most links that a span keeps by default (OTEL_SPAN_LINK_COUNT_LIMIT).
_MAX_LINKS = 128


class RequestTrace:
    """The span of a request and, below it, one for each of its phases. Times are seconds of `time.monotonic`.

    The trace is that of the request's `traceparent`, if it has one. If the trace is not sampled, no phase is recorded.
    A request has at most 256 phases; further ones are counted only.
    """

    __slots__ = ("_computed_at", "_is_resolved", "_num_phases", "_offset", "_span", "_started", "_tracer")

    def __init__(self, tracer: Tracer, headers: Mapping[str, str], started: float) -> None:
        self._tracer = tracer
        self._started = started
        # Wall-clock time of the monotonic clock's zero. A change of the wall clock moves no phase of the request.
        self._offset = time.time_ns() - int(time.monotonic() * _NANO)
        self._span: Span = tracer.start_span(
            "request", propagate.extract(headers), SpanKind.SERVER, start_time=self._nano(started)
        )
        self._num_phases = 0
        self._is_resolved = False
        self._computed_at: float | None = None

    @property
    def tracer(self) -> Tracer:
        """The tracer of its spans."""
        return self._tracer

    @property
    def span_context(self) -> SpanContext:
        """The identity of the request's span, for links and logs."""
        return self._span.get_span_context()

    @property
    def is_recording(self) -> bool:
        """Whether the trace is sampled."""
        return self._span.is_recording()

    @contextmanager
    def resolving(self, task: str) -> Iterator[None]:
        """The block resolves `task`. Whatever came before the first such block was the arrival."""
        started = time.monotonic()
        if not self._is_resolved:
            self._is_resolved = True
            self.add("arrival", self._started, started)
        try:
            yield
        finally:
            self.add("resolve", started, time.monotonic(), {"peltier.task": task[:_MAX_TASK_LEN]})

    def add(
        self, name: str, start: float, end: float, attributes: Mapping[str, Any] | None = None,
        links: Sequence[Link] = (),
    ) -> None:  # fmt: skip
        """Records a phase that has ended."""
        if not self.is_recording:
            return
        self._num_phases += 1
        if self._num_phases > _MAX_SPANS:
            return
        parent = set_span_in_context(self._span)
        span = self._tracer.start_span(name, parent, SpanKind.INTERNAL, attributes, links, self._nano(start))
        span.end(self._nano(end))

    def add_work(
        self, queued_at: float, queue_seconds: float, compute_seconds: float, batch: SpanContext | None
    ) -> None:
        """Records the wait and the computation of rows or texts. The computation links to its batch."""
        computed_from = queued_at + queue_seconds
        self._computed_at = max(self._computed_at or 0.0, computed_from + compute_seconds)
        self.add("queue", queued_at, computed_from)
        links = [] if batch is None else [Link(batch)]
        self.add("compute", computed_from, computed_from + compute_seconds, links=links)

    def end(self, name: str, status: int, attributes: Mapping[str, Any]) -> None:
        """Ends the request's span, which is called `name`; the time after the computation was the answer."""
        now = time.monotonic()
        if self._computed_at is not None:
            self.add("answer", self._computed_at, now)
        self._span.update_name(name)
        self._span.set_attributes({**attributes, "http.response.status_code": status})
        if self._num_phases > _MAX_SPANS:
            self._span.set_attribute("peltier.dropped_phases", self._num_phases - _MAX_SPANS)
        if status >= 500:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end(self._nano(now))

    def _nano(self, seconds: float) -> int:
        return self._offset + int(seconds * _NANO)


class BatchTrace:
    """The span of a batch, in a trace of its own, from its creation to `end`. It links the spans of its requests, of
    which one batch has many."""

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
