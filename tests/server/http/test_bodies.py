"""The server counts bodies before it reads them, and parses large ones in threads with the same errors."""

import asyncio
import re
import threading
import weakref
from collections.abc import Callable
from itertools import product
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from fastapi.routing import APIRoute
from peltier_backbone.backbone import Backbone
from peltier_server.context import BodyLimit, RequestContext, attach_context
from peltier_server.http import bodies
from peltier_server.http.incoming import Incoming
from starlette.requests import Request
from starlette.types import Message

from tests.server.conftest import IN_ONE_LOOP, Running

pytestmark = IN_ONE_LOOP
PREDICT = "/v1/tasks/demo/predict"
PADDING = b" " * 100_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def loaded(app_world: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> Running:
    assert (await app_world.upload(make_artifact(bert, name="demo"))).status_code == 201
    return app_world


async def ask(running: Running, body: object, path: str = PREDICT) -> httpx2.Response:
    return await running.client.post(path, content=body, headers={"content-type": "application/json"})  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [PREDICT, "/v1/predict", "/v1/completions"])
@pytest.mark.parametrize(
    "body",
    [b'{"inputs": 3, "more": 1}', b'{"requests": [{"task": 1}], "model": 3}', b'{"inputs": }', b"[1]", b'"\\ud800"'],
)
async def test_a_large_body_is_refused_in_the_words_of_a_small_one(loaded: Running, path: str, body: bytes) -> None:
    small, large = await ask(loaded, body, path), await ask(loaded, body + PADDING, path)
    assert small.status_code in (400, 422)
    assert (large.status_code, large.json()) == (small.status_code, small.json())


async def test_a_large_body_is_parsed_in_a_thread(loaded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, read = list[str](), bodies.read_json

    def note(*given: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return read(*given, **options)

    monkeypatch.setattr(bodies, "read_json", note)
    body = b'{"requests": [{"task": "demo", "input": "bad"}]'
    found = [(await ask(loaded, body + padding + b"}", "/v1/predict")).status_code for padding in (b"", PADDING)]
    assert found == [200, 200]
    assert (threads[0].startswith("preparation"), threads[1].startswith("preparation")) == (False, True)


async def test_very_many_mistakes_are_one_sentence(loaded: Running) -> None:
    """To name each would take as long as to answer a hundred requests."""
    item = b'{"task": "demo", "input": "a", "b": 1, "c": 1, "d": 1}'
    answer = await ask(loaded, b'{"requests": [' + b",".join([item] * 1000) + b"]}", "/v1/predict")
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].startswith("the request body has 3000 mistakes; they are named where")


@pytest.mark.parametrize("length", [100, 300_000], ids=["small", "large"])
async def test_a_body_beyond_the_bound_is_not_read(loaded: Running, length: int) -> None:
    body_bytes = loaded.app.state.preparation.body_bytes
    body = b'{"inputs": "bad"}' + b" " * length
    pulled = 0

    async def pieces():
        nonlocal pulled
        pulled += 1
        yield body

    headers = {"content-type": "application/json", "content-length": str(len(body))}
    with body_bytes.hold("default", body_bytes.max_of_one):
        answer = await loaded.client.post(PREDICT, content=pieces(), headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"], answer.headers["retry-after"]) == (
            503, "queue_full", "1",
        )  # fmt: skip
    assert (await ask(loaded, body)).status_code == 200
    assert body_bytes.total == 0


async def test_a_body_in_chunks_is_counted_as_it_comes(loaded: Running) -> None:
    """Its length is not known before; what has come is given back when it is refused."""
    body_bytes, go_on = loaded.app.state.preparation.body_bytes, asyncio.Event()

    async def pieces():
        yield b'{"inputs": "bad"'
        await go_on.wait()
        yield PADDING
        yield b"}"

    call = asyncio.ensure_future(ask(loaded, pieces()))
    while not body_bytes.total:  # noqa: ASYNC110 - there is no event for what tests look at
        await asyncio.sleep(0.001)
    with body_bytes.hold("default", body_bytes.max_of_one - body_bytes.total):
        go_on.set()
        assert (await call).status_code == 503
    assert body_bytes.total == 0


async def test_a_request_is_freed_when_it_ends(loaded: Running) -> None:
    """By its references: a cycle would keep its body until the garbage collector runs."""
    messages: list[Message] = [{"type": "http.request", "body": b"{}", "more_body": False}]

    async def receive() -> Message:
        return messages.pop()

    scope: dict[str, Any] = {"type": "http", "headers": [], "state": {}}
    context = RequestContext("1", body_limit=BodyLimit(10))
    attach_context(scope, context)
    incoming = Incoming(context, receive, 1.0, is_whole=True)
    request = bodies.JSONRequest(Request(scope, incoming.receive), loaded.app.state.preparation, bytes)
    assert await request.body() == b"{}"
    freed = [weakref.ref(request), weakref.ref(incoming)]
    del request, incoming
    assert [ref() for ref in freed] == [None, None]


DEEP = 970
NESTED = {
    "lists": b"[" * DEEP + b"]" * DEEP,
    "objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "open lists": b"[" * 60_000,
}
FIELDS = ("inputs", "input", "requests", "tasks", "parameters", "documents", "prompt", "labels", "outputs", "scores")


@pytest.mark.parametrize("padding", [b"", PADDING], ids=["small", "large"])
@pytest.mark.parametrize("nested", NESTED.values(), ids=NESTED)
async def test_deep_nesting_is_refused_by_every_route(loaded: Running, nested: bytes, padding: bytes) -> None:
    bodies = [nested, b"{%s}" % b",".join(b'"%s":%s' % (name.encode(), nested) for name in FIELDS)]
    routes = [route for route in loaded.app.routes if isinstance(route, APIRoute) and route.body_field is not None]
    for route, body in product(routes, bodies):
        path = re.sub(r"{.*?}", "1", route.path)
        (method,) = route.methods
        headers = {"content-type": "application/json"}
        answer = await loaded.client.request(method, path, content=body + padding, headers=headers)
        assert 400 <= answer.status_code < 500, (method, path, answer.text)
        assert not re.search("Error|Exception|recursion|pydantic", answer.text), answer.text


BROKEN = {
    "no JSON": (b'{"inputs": }', "the body is not JSON: Expecting value at character 11"),
    "no UTF-8": (b'{"inputs": "\xff"}', "the body is not UTF-8: its byte 12 begins no character"),
    "UTF-16": ('{"inputs": "a"}'.encode("utf-16"), "the body is not UTF-8: its byte 0 begins no character"),
    "a long number": (
        b'{"inputs": %s}' % (b"9" * 5000),
        "the body has a whole number of 5000 digits; at most 40 are read",
    ),
    "too deep": (b"[" * 5000, "the body nests lists or objects more deeply than this server reads"),
    "many keys": (
        b'{"inputs": {%s}}' % b",".join(b'"%d":1' % number for number in range(1200)),
        "the request body has an object of 1200 keys; at most 1000 are read",
    ),
    "many documents": (
        b'{"query": "a", "model": "demo", "documents": [%s]}' % b",".join([b"1"] * 1025),
        "the request has 1025 documents; at most 1024 are allowed",
    ),
    "many sentences": (
        b'{"inputs": {"source_sentence": "a", "sentences": [%s]}}' % b",".join([b"1"] * 1025),
        "the request has 1025 sentences; at most 1024 are allowed",
    ),
}


@pytest.mark.parametrize("padding", [b"", PADDING], ids=["small", "large"])
@pytest.mark.parametrize("name", BROKEN)
async def test_what_a_parser_refuses_is_one_sentence(loaded: Running, name: str, padding: bytes) -> None:
    """Its own words name classes and limits of an interpreter."""
    body, sentence = BROKEN[name]
    answer = await ask(loaded, body + padding)
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]["message"] == sentence


async def test_mistakes_are_described_in_a_thread(loaded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of small bodies too: a thousand take longer than a batch."""
    threads, describe = list[str](), bodies._refusal

    def note(error: Any) -> Any:
        threads.append(threading.current_thread().name)
        return describe(error)

    monkeypatch.setattr(bodies, "_refusal", note)
    answer = await ask(loaded, b'{"requests": [%s]}' % b",".join([b"{}"] * 500), "/v1/predict")
    assert answer.json()["error"]["message"] == "requests.0.task is missing (and 999 more)"
    assert [name.startswith("preparation") for name in threads] == [True]
