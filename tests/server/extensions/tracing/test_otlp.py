"""Traces of a server as a collector receives them."""

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from peltier_server.extensions.tracing.extension import asks_for_traces, create_tracing
from peltier_server.logs.logs import JsonFormatter, Redactor
from peltier_server.settings import SettingsError

from tests.server.conftest import Running, Serve
from tests.support.otlp_collector import Collector, collecting, values

PHASES = {"arrival", "resolve", "load", "queue", "compute", "answer"}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that the environment names."""
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "peltier-of-a-test")
        yield collector


async def predict(running: Running, sampled: str = "01") -> None:
    """Two concurrent requests, the first of them with a caller's trace."""
    calls = (
        running.client.post(
            "/v1/tasks/a/predict", json={"inputs": ["bad", "a good film"]},
            headers={"traceparent": f"00-{TRACE}-{PARENT}-{sampled}", "x-request-id": "one"},
        ),
        running.predict("a@1", "bad"),
    )  # fmt: skip
    assert {answer.status_code for answer in await asyncio.gather(*calls)} == {200}


async def test_a_request_is_traced_through_its_phases(collector, serve, bert, make_artifact):
    """The spans continue the caller's trace, follow each other, and name who asked for what."""
    async with serve() as running:
        await running.upload(make_artifact(bert, name="a"))
        await predict(running)
        await running.client.get("/health")
        await running.predict("nobody", "bad")
    (request,) = [span for span in collector.spans if span.parent_span_id.hex() == PARENT]
    assert (request.name, request.kind) == ("POST /v1/tasks/{task}/predict", Span.SPAN_KIND_SERVER)
    assert request.trace_id.hex() == TRACE
    found = values(request.attributes)
    assert found["peltier.request_id"] == "one"
    assert found["http.response.status_code"] == 200
    assert [found[f"peltier.{name}"] for name in ("tenant", "adapter", "version")] == ["default", "a", "1"]
    phases = {span.name: span for span in collector.spans if span.parent_span_id == request.span_id}
    assert set(phases) == PHASES
    assert {span.trace_id.hex() for span in phases.values()} == {TRACE}
    starts = [phases[name].start_time_unix_nano for name in ("arrival", "resolve", "load", "queue", "compute")]
    assert starts == sorted(starts)
    assert all(
        one.start_time_unix_nano <= one.end_time_unix_nano <= request.end_time_unix_nano for one in phases.values()
    )
    assert phases["queue"].end_time_unix_nano == phases["compute"].start_time_unix_nano
    names = {span.name for span in collector.spans}
    assert not any("health" in name for name in names)
    assert "POST /v1/adapters" in names
    assert {values(one.attributes)["service.name"] for one in collector.resources} == {"peltier-of-a-test"}


async def test_the_span_of_a_batch_links_its_requests(collector, serve, bert, make_artifact):
    """And each request's computation links its batch, which is in a trace of its own."""
    async with serve() as running:
        await running.upload(make_artifact(bert, name="a"))
        await predict(running)
    requests = {span.span_id for span in collector.named("POST /v1/tasks/{task}/predict")}
    batches = {span.span_id: span for span in collector.named("batch")}
    linked = {link.span_id for batch in batches.values() for link in batch.links}
    assert len(requests) == 2
    assert linked == requests
    assert {link.span_id for span in collector.named("compute") for link in span.links} == set(batches)
    assert sum(values(batch.attributes)["peltier.batch.rows"] for batch in batches.values()) == 3
    assert TRACE not in {batch.trace_id.hex() for batch in batches.values()}


async def test_a_refused_request_is_an_error(collector: Collector, serve: Serve) -> None:
    """Of the server from 500 on; the name is that of the route also where the request ended early."""
    async with serve() as running:
        await running.predict("nobody", "bad")
        running.app.state.lifecycle.drain()
        assert (await running.predict("nobody", "bad")).status_code == 503
    by_status = {values(span.attributes)["http.response.status_code"]: span
                 for span in collector.named("POST /v1/tasks/{task}/predict")}  # fmt: skip
    assert {status: span.status.code for status, span in by_status.items()} == {
        404: Status.STATUS_CODE_UNSET,
        503: Status.STATUS_CODE_ERROR,
    }


async def test_an_unsampled_trace_has_no_spans(collector, serve, bert, make_artifact):
    """The caller's decision holds, also for batches of its requests alone."""
    async with serve() as running:
        await running.upload(make_artifact(bert, name="a"))
        await predict(running, sampled="00")
    assert TRACE not in {span.trace_id.hex() for span in collector.spans}
    (other,) = collector.named("POST /v1/tasks/{task}/predict")
    assert {link.span_id for batch in collector.named("batch") for link in batch.links} == {other.span_id}


async def test_the_parts_of_a_mixed_request_are_phases_of_it(collector, serve, bert, make_artifact):
    """At most 256, and the request's span says how many there were more."""
    async with serve() as running:
        await running.upload(make_artifact(bert, name="a"))
        await running.predict_mixed(*[{"task": "a", "input": "bad"}] * 100)
    (request,) = collector.named("POST /v1/predict")
    phases = [span for span in collector.spans if span.parent_span_id == request.span_id]
    assert len(phases) == 256
    # An arrival, four phases of each part, and an answer.
    assert values(request.attributes)["peltier.dropped_phases"] == 402 - 256


async def test_a_span_keeps_the_beginning_of_a_long_task(collector: Collector, serve: Serve) -> None:
    """Spans wait in memory for the collector, so no caller decides how much each of them takes."""
    async with serve() as running:
        (result,) = (await running.predict_mixed({"task": "x" * 100_000, "input": "bad"})).json()["results"]
    assert result["error"]["code"] == "invalid_input"
    (resolved,) = collector.named("resolve")
    assert values(resolved.attributes)["peltier.task"] == "x" * 200


async def test_a_generated_text_is_traced(collector, serve, t5, t5_directory, make_artifact):
    """With the same phases; it is computed over many steps, so no batch is its own."""
    async with serve(backbone=t5_directory) as running:
        await running.upload(make_artifact(t5, name="a", task_type="text2text"))
        assert (await running.predict("a", "bad")).status_code == 200
    (request,) = collector.named("POST /v1/tasks/{task}/predict")
    assert {span.name for span in collector.spans if span.parent_span_id == request.span_id} == PHASES


async def test_log_records_have_the_ids_of_the_trace(collector, serve, bert, make_artifact, caplog):
    """A line of JSON names the request, its tenant, adapter and version, and the span that a trace viewer finds."""
    lines = list[dict[str, object]]()

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(JsonFormatter(Redactor()).format(record)))

    handler = Lines()
    logger = logging.getLogger("peltier_server.logs.access_log")
    logger.addHandler(handler)
    try:
        async with serve(access_log=True) as running:
            logger.setLevel(logging.INFO)
            await running.upload(make_artifact(bert, name="a"))
            await predict(running)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    (line,) = [line for line in lines if line["request_id"] == "one"]
    (request,) = [span for span in collector.spans if span.parent_span_id.hex() == PARENT]
    assert line["trace_id"] == TRACE
    assert line["span_id"] == request.span_id.hex()
    assert (line["tenant"], line["adapter"], line["version"]) == ("default", "a", 1)


async def test_a_collector_that_is_down_costs_no_request(serve, bert, make_artifact, monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")  # once, at the end
    async with serve() as running:
        await running.upload(make_artifact(bert, name="a"))
        assert (await running.predict("a", "bad")).status_code == 200
    records = [record for record in caplog.records if record.name.startswith("opentelemetry")]
    assert [record.levelname for record in records] == ["ERROR"]


async def test_nothing_is_traced_without_the_variables(running: Running) -> None:
    """The middleware has no tracer, so a request creates no span."""
    assert [one.kwargs["tracer"] for one in running.app.user_middleware] == [None]


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
    ],
)
def test_the_standard_variables_choose(given: dict[str, str], asked: bool) -> None:
    """Traces are exported where their exporter is otlp, or where there is an endpoint and no exporter is named."""
    assert asks_for_traces(given) == asked


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER is 'zipkin': this server exports by otlp, or none"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc': this server speaks http/protobuf only",
        ),
    ],
)
def test_what_there_is_not_is_refused(given: dict[str, str], sentence: str) -> None:
    """At the start, instead of an export that nobody gets."""
    with pytest.raises(SettingsError, match=sentence):
        asks_for_traces(given)


def test_a_variable_that_the_sdk_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence at the start, as for a setting of the server's own."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_SPAN_LINK_COUNT_LIMIT", "many")
    with pytest.raises(SettingsError, match="OTEL_SPAN_LINK_COUNT_LIMIT must be a non-negative integer but got many"):
        create_tracing()
