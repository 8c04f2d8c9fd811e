"""An answer is that to the request."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest
from peltier_client import AsyncClient, Client, ConnectionFailed

from tests.client.conftest import INFO, Answer, LittleServer, answer_for, events_for

_ANOTHER = f"peltier-{'0' * 32}"


def _answer(request_id: str | None) -> Answer:
    return Answer(200, answer_for("sst2", 1), {} if request_id is None else {"x-request-id": request_id})


def test_every_attempt_has_an_id_of_its_own(client: Client, server: LittleServer, refuse) -> None:
    """Of 128 random bits; the answer's id is the one that feedback names."""
    server.planned.append(refuse(503, "not_ready"))
    found = client.predict("sst2", "text")
    first, second = (one.headers["x-request-id"] for one in server.received)
    assert first != second
    assert found.request_id == second


def test_the_answer_to_another_request_is_an_error(client: Client, server: LittleServer) -> None:
    """It names both ids, and its connection is not used again: the next answer is the own one."""
    server.planned.append(_answer(_ANOTHER))
    with pytest.raises(
        ConnectionFailed, match=f"gave the answer to another request: its x-request-id is {_ANOTHER}"
    ) as e:
        client.predict("sst2", "text")
    assert server.received[-1].headers["x-request-id"] in str(e.value)
    assert client.predict("sst2", "text")[0].label == "positive"


async def test_the_stream_of_another_request_is_an_error(async_client: AsyncClient, server: LittleServer) -> None:
    """Before its first piece."""
    stream = events_for("e2e")
    stream.headers["x-request-id"] = _ANOTHER
    server.planned.append(stream)
    with pytest.raises(ConnectionFailed, match="gave the answer to another request"):
        await anext(async_client.stream("e2e", "text"))


@pytest.mark.parametrize("given", ["", "7b1f0c", "f00, {own}", "{own}, f00"])
def test_proxies_may_replace_the_id(client: Client, server: LittleServer, given: str) -> None:
    """By one of their own form, or by none, and may add theirs."""
    answer = _answer("")
    server.planned.append(answer)

    def fill() -> None:
        answer.headers["x-request-id"] = given.format(own=server.received[-1].headers["x-request-id"])

    answer.before = fill
    assert client.predict("sst2", "text")[0].label == "positive"


@pytest.fixture
def cache_url(server: LittleServer) -> Iterator[str]:
    """A proxy that keeps the first answer to each GET with its headers, and looks only at the path."""
    kept: dict[str, httpx2.Response] = {}

    class Cache(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path not in kept:
                headers = {"x-request-id": self.headers["x-request-id"]}
                kept[self.path] = httpx2.get(f"{server.url}{self.path}", headers=headers)
            answer = kept[self.path]
            self.send_response(answer.status_code)
            for name in ("content-type", "content-length", "x-request-id"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Cache) as http:
        http.daemon_threads = True
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


async def test_a_cache_may_answer_a_get(cache_url: str, server: LittleServer) -> None:
    """With the id of an earlier request for the same, of any client."""
    with Client(cache_url) as client:
        assert client.info() == client.info()
        names = [one.name for one in client.adapters()]
    async with AsyncClient(cache_url) as other:
        assert [one.name async for one in other.adapters()] == names
    assert [one.path.partition("?")[0] for one in server.received] == ["/info", "/v1/adapters", "/v1/adapters"]


def test_the_answer_to_a_get_of_something_else_is_an_error(client: Client, server: LittleServer) -> None:
    """Such as another page of a list."""
    client.info()
    server.planned.append(Answer(200, INFO, {"x-request-id": server.received[0].headers["x-request-id"]}))
    assert client.info().version == INFO["version"]
    server.planned.append(Answer(200, INFO, {"x-request-id": server.received[0].headers["x-request-id"]}))
    with pytest.raises(ConnectionFailed, match="gave the answer to another request"):
        client.health()


def test_a_given_transport_may_replay_recorded_answers() -> None:
    """Those to other requests, of another process."""
    recorded = httpx2.Response(200, json=answer_for("sst2", 1), headers={"x-request-id": _ANOTHER})
    with Client(transport=httpx2.MockTransport(lambda _: recorded)) as client:
        assert client.predict("sst2", "text")[0].label == "positive"


def test_uploads_have_an_id_too(client: Client, server: LittleServer) -> None:
    """They are forms, and no JSON."""
    client.upload(b"artifact", name="sst2")
    assert server.received[0].headers["x-request-id"].startswith("peltier-")
