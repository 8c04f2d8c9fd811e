"""The app and its route class: plain endpoints are called without the framework's solver, and answer as it does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from unittest.mock import Mock

import httpx2
import pytest
import pytest_asyncio
from fastapi import APIRouter
from peltier_backbone.backbone import Backbone
from peltier_client.errors import InvalidInput, QueueFull
from peltier_client.protocol.reports import MAX_REPORT_BYTES
from peltier_server.http.request_middleware import RequestMiddleware
from peltier_server.http.scoped_route import ScopedRoute
from peltier_server.protocols import rerank
from peltier_server.protocols.openai import routes as openai
from peltier_server.quotas.enforcer import QuotaSlot
from peltier_server.routes import predict
from starlette.types import Message, Receive, Scope

from tests.server.conftest import IN_ONE_LOOP, Running, Serve, until
from tests.support.rate_windows import stand_still

pytestmark = IN_ONE_LOOP
JSON = "application/json"
BODY = b'{"inputs": "a good film"}'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def loaded(app_world: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> AsyncIterator[Running]:
    async with app_world.enter() as caller:
        assert (await caller.upload(make_artifact(bert, "compacter", name="sst2"))).status_code == 201
        yield caller


async def ask(running: Running, body: bytes, content_type: str = JSON) -> httpx2.Response:
    headers = {"content-type": content_type}
    return await running.client.post("/v1/tasks/sst2/predict", content=body, headers=headers)


@pytest.mark.parametrize("kind", [JSON, "application/json; charset=utf-8", "Application/JSON", "application/a+json"])
async def test_a_body_of_a_type_that_means_json_is_read(loaded: Running, kind: str) -> None:
    """As by the framework's own routes."""
    other = await loaded.client.post("/v1/tenants", content=b'{"name": 3}', headers={"content-type": kind})
    assert ((await ask(loaded, BODY, kind)).status_code, other.status_code) == (200, 422)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "text/json", "json", ""])
async def test_a_body_of_another_type_is_refused(loaded: Running, kind: str) -> None:
    """Whatever is in it, and as by the framework's own routes."""
    other = await loaded.client.post("/v1/tenants", content=b'{"name": 3}', headers={"content-type": kind})
    for answer in (await ask(loaded, BODY, kind), other):
        assert answer.status_code == 400
        assert answer.json()["error"]["message"].endswith("send it with content-type: application/json")


async def test_an_answer_says_what_was_truncated(loaded: Running) -> None:
    for long, said in ((("good " * 200, "bad", "film " * 63), "2"), (("bad", "film " * 62), None)):
        answer = await loaded.predict("sst2", long)
        assert answer.json()["usage"]["truncated_inputs"] == int(said or 0)
        assert answer.headers.get("x-truncated-inputs") == said
    refused = await loaded.predict("sst2", ["bad", "good " * 200, "film " * 63], truncate=False)
    assert refused.json()["error"]["details"] == [
        "input 1: the input has 202 tokens; this task takes at most 64",
        "input 2: the input has 65 tokens; this task takes at most 64",
    ]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422), (b"{", 400), (b"\xff", 400), (b"[" * 2000, 400), (b"null", 422), (b'{"inputs": 5}', 422),
        (b'{"inputs": ["a"], "more": 1}', 422), (b"[1]", 422),
    ],
)  # fmt: skip
async def test_a_wrong_body_is_refused(loaded: Running, body: bytes, status: int) -> None:
    assert (await ask(loaded, body)).status_code == status


async def test_a_wrong_body_counts_once(loaded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_still(monkeypatch)
    async with loaded.limited(requests_per_second=0.02):
        answer = await ask(loaded, b"{}")
    assert (answer.status_code, answer.headers["ratelimit-remaining"]) == (422, "1")


async def test_a_body_in_pieces_is_read_whole(loaded: Running) -> None:

    async def pieces() -> AsyncIterator[bytes]:
        yield BODY[:9]
        yield BODY[9:]

    headers = {"content-type": JSON, "content-length": str(len(BODY))}
    answer = await loaded.client.post("/v1/tasks/sst2/predict", content=pieces(), headers=headers)
    assert answer.status_code == 200, answer.text


async def test_of_a_header_that_is_there_twice_the_first_counts(loaded: Running) -> None:
    headers = [("content-type", "text/plain"), ("content-type", JSON)]
    answer = await loaded.client.post("/v1/tasks/sst2/predict", content=BODY, headers=headers)
    assert answer.status_code == 400


async def test_a_body_that_does_not_come_is_408(serve: Serve) -> None:
    """What goes wrong before the body is there is answered in the same place."""

    answered = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        await answered.wait()
        yield b"{}"

    headers = {"content-type": JSON, "content-length": "2"}
    async with serve(stall_seconds=0.05) as running:
        answer = await running.client.post("/v1/tasks/sst2/predict", content=pieces(), headers=headers)
    answered.set()
    assert (answer.status_code, answer.json()["error"]["code"]) == (408, "too_slow")


async def test_the_routes_of_inference_are_plain() -> None:
    routes = [route for router in (predict.router, openai.router, rerank.router) for route in router.routes]
    plain = {route.path for route in routes if isinstance(route, ScopedRoute) and route._is_plain}
    served = {"/v1/tasks/{task}/predict", "/v1/predict", "/v1/completions", "/v1/embeddings", "/v1/rerank", "/rerank"}
    assert plain == served


async def test_an_artifact_has_a_bound_of_its_own(
    serve: Serve, bert: Backbone, make_artifact: Callable[..., bytes]
) -> None:
    async with serve(max_body_bytes=2000) as running:
        data = make_artifact(bert, "compacter")
        assert len(data) > 2000
        assert (await running.upload(data)).status_code == 201


async def test_a_body_has_a_bound(serve: Serve) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b" " * 1000

    async with serve(max_body_bytes=2000, max_artifact_bytes=2000) as running:
        for path in ("/v1/tasks/a/predict", "/v1/tenants"):
            for length in ({"content-length": "2001"}, {}):
                headers = {"content-type": JSON, **length}
                answer = await running.client.post(path, content=pieces(), headers=headers)
                assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large"), path
        headers = {
            "content-type": "multipart/form-data; boundary=a",
            "content-length": str(2001 + MAX_REPORT_BYTES + 64 * 1024),
        }
        answer = await running.client.post("/v1/adapters", content=pieces(), headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


async def test_a_caller_who_leaves_in_the_middle_of_a_body_is_499(loaded: Running) -> None:
    """And nothing is logged as a fault of the server."""
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    statuses = list[int]()

    async def receive() -> Message:
        return next(messages)

    await call(loaded, receive, statuses)
    assert statuses == [499]


async def test_a_refused_body_that_still_arrives_holds_its_slot_until_the_drain_ends(
    loaded: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of the drain is one warning, and no exception for the HTTP server."""
    statuses, in_flight = list[int](), loaded.app.state.enforcer.in_flight

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("the body never comes")

    refused = asyncio.create_task(call(loaded, receive, statuses, content_length=b"999999999"))
    await until(lambda: statuses)
    assert (statuses, in_flight) == ([413], {loaded.tenant: 1})
    refused.cancel()
    await refused
    assert not in_flight
    (record,) = caplog.records
    assert record.getMessage().startswith("the server stopped in the middle of the answer to request ")


async def test_a_long_error_without_room_is_503(loaded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """As any long answer."""
    long, full = InvalidInput("each is wrong", ["wrong"] * 20_000), QueueFull("no room", retry_after=1.0)
    monkeypatch.setattr(loaded.service.predictor, "resolve", Mock(side_effect=long))
    assert (await ask(loaded, BODY)).status_code == 422
    monkeypatch.setattr(loaded.app.state.preparation.answer_bytes, "add", Mock(side_effect=full))
    answer = await ask(loaded, BODY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_full")


@pytest.mark.parametrize("body", [BODY, b"{}"])
async def test_quotas_that_fail_while_an_answer_is_sent_are_500(
    loaded: Running, body: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For an answer and for an error."""

    async def fail(*_: object) -> None:
        raise OSError("no quotas")

    monkeypatch.setattr(QuotaSlot, "headers", fail)
    answer = await ask(loaded, body)
    request_id = answer.headers["x-request-id"]
    assert answer.status_code == 500
    assert answer.json()["error"]["message"].endswith(f"its log has the reason under x-request-id {request_id}")
    assert [record.getMessage() for record in caplog.records] == [f"request {request_id} failed"]


async def call(loaded: Running, receive: Receive, statuses: list[int], content_length: bytes = b"20") -> None:
    """Calls the app for a prediction, and adds the status of the answer to `statuses`."""

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    key = loaded.client.headers["authorization"].encode()
    headers = [(b"host", b"127.0.0.1"), (b"authorization", key)]
    headers += [(b"content-type", JSON.encode()), (b"content-length", content_length)]
    scope: Scope = {
        "type": "http", "method": "POST", "path": "/v1/tasks/sst2/predict", "root_path": "", "query_string": b"",
        "headers": headers,
    }  # fmt: skip
    await loaded.app(scope, receive, send)


async def test_a_request_passes_our_layer_only(app_world: Running) -> None:
    """From the outermost to the router. An endpoint that the framework calls has one of its own around it."""
    await app_world.client.get("/health")
    layers, app = list[type](), app_world.app.middleware_stack
    while app is not None:
        layers.append(type(app))
        app = getattr(app, "_app", None)
    assert layers == [RequestMiddleware, APIRouter]


async def test_an_unknown_address_and_method_are_answered(app_world: Running) -> None:
    for method, path, status, code in (
        ("GET", "/nowhere", 404, "not_found"),
        ("DELETE", "/health", 405, "method_not_allowed"),
        ("GET", "/v1/tasks/a/predict", 405, "method_not_allowed"),
    ):
        answer = await app_world.client.request(method, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_slash_at_the_end_redirects_nobody(app_world: Running, method: str) -> None:
    """A redirect would name the host that the caller sent."""
    answer = await app_world.client.request(method, "/v1/adapters/")
    assert answer.status_code == 404
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "/", "/health", "/ready", "/docs", "/info", "/metrics", "/v1/adapters", "/v1/models",
        pytest.param("/openapi.json", marks=pytest.mark.slow),  # costs the most, and is a page as /docs is
    ],
)  # fmt: skip
async def test_head_answers_as_get_does(app_world: Running, path: str) -> None:
    wanted, found = [await app_world.client.request(method, path) for method in ("GET", "HEAD")]
    changing = {"x-request-id", "content-length", "date"}
    assert (found.status_code, found.content) == (wanted.status_code, b"")
    assert set(found.headers) - changing == set(wanted.headers) - changing


async def test_head_is_refused_where_get_is(app_world: Running) -> None:
    answer = await app_world.client.head("/v1/predict")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
