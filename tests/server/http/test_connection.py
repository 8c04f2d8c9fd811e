"""The bounds of a connection, over a real socket with an app that sends large answers."""

import asyncio
import inspect
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import peltier_server
import pytest
import uvicorn
from peltier_server.http import connection
from peltier_server.http.connection import AnswerOutput, has_closed
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.server.attacker import listen as hear
from tests.server.conftest import Listen

_PIECE_BYTES = 64 * 1024
_BODY = bytes(24 * 1024 * 1024)
_REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
_REQUEST_OF_PIECES = _REQUEST.replace(b"/", b"/pieces", 1)
_STALL_SECONDS = 0.5
_MAX_CONNECTIONS = 4
_WAITS = b"GET /waits HTTP/1.1\r\n\r\n"
_RELEASED = b"GET /released HTTP/1.1\r\n\r\n"
_LENGTH = b"GET /length HTTP/1.1\r\n\r\n"
# Set when a request to /waits has heard that its caller has left.
_left = threading.Event()
# Set when a request to /released has begun. Until the second one it has no answer.
_held, _released = threading.Event(), threading.Event()
# Requests by path.
_asked = Counter[str]()


class Transport:
    def __init__(self) -> None:
        self.written = list[bytes]()
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def open_output() -> tuple[Transport, AnswerOutput, SimpleNamespace]:
    transport, cycle = Transport(), SimpleNamespace(response_started=False)
    output = AnswerOutput(transport)
    output.expect_head(cycle)
    return transport, output, cycle


async def test_a_head_and_its_body_are_one_write() -> None:
    """Later pieces, and what comes before the head, are written as they come; a second answer is like the first."""
    transport, output, cycle = open_output()
    output.write(b"continue")
    cycle.response_started = True
    for data in (b"head", b"body", b"more"):
        output.write(data)
    output.expect_head(cycle)
    for data in (b"second head", b"body"):
        output.write(data)
    await asyncio.sleep(0)
    assert transport.written == [b"continue", b"headbody", b"more", b"second headbody"]


async def test_a_head_does_not_wait_for_a_late_body() -> None:
    transport, output, cycle = open_output()
    cycle.response_started = True
    output.write(b"head")
    assert transport.written == []
    await asyncio.sleep(0)
    output.write(b"body")
    assert transport.written == [b"head", b"body"]


async def test_a_head_without_a_body_leaves_before_the_end() -> None:
    """Also where the connection is closed, or another answer begins, in the same turn."""
    transport, output, cycle = open_output()
    cycle.response_started = True
    output.write(b"first")
    output.expect_head(cycle)
    output.write(b"second")
    output.close()
    await asyncio.sleep(0)
    assert (transport.written, transport.closed) == ([b"first", b"second"], True)


async def test_nothing_is_written_to_a_connection_that_is_gone() -> None:
    transport, output, cycle = open_output()
    cycle.response_started = True
    output.write(b"head")
    transport.closed = True
    await asyncio.sleep(0)
    assert transport.written == []


class Loop(asyncio.SelectorEventLoop):
    """Its time stands still, except where a test lets some of it pass."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def let_pass(self, seconds: float) -> None:
        """Returns once everything is done that is due by then."""
        done = threading.Event()

        def go_on() -> None:
            self.now += seconds
            self.call_later(0, done.set)

        self.call_soon_threadsafe(go_on)
        assert done.wait(60)


@dataclass
class Server:
    """Where the app answers. Behind `tight` the kernel keeps little of an answer, so that the server sees what callers
    take."""

    usual: tuple[str, int]
    tight: tuple[str, int]
    connections: set[Any]
    # Bytes that it has read, by the address of the caller.
    received: Counter[tuple[str, int]]
    loop: Loop = field(default_factory=Loop)

    def has(self, caller: socket.socket) -> bool:
        return any(one.client == caller.getsockname() for one in list(self.connections))

    def hear(self, caller: socket.socket, data: bytes) -> None:
        wanted, deadline = self.received[caller.getsockname()] + len(data), time.monotonic() + 60
        caller.sendall(data)
        while self.received[caller.getsockname()] < wanted:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def cut_off(self, caller: socket.socket) -> None:
        for _ in range(1000):
            if not self.has(caller):
                return
            self.loop.let_pass(_STALL_SECONDS / 5)
        raise AssertionError("it is still open")


@pytest.fixture
def address(server: Server) -> tuple[str, int]:
    return server.usual


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    received = Counter[tuple[str, int]]()

    class Counted(connection.connection_class(_STALL_SECONDS, _MAX_CONNECTIONS)):  # type: ignore[misc]
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            received[self.client] += len(data)

    config = uvicorn.Config(_answer, http=Counted, ws="none", port=0, log_config=None)
    running = uvicorn.Server(config)
    usual, tight = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    # Its connections inherit it.
    tight.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 * 1024)
    made = Server(usual.getsockname(), tight.getsockname(), running.server_state.connections, received)

    def serve() -> None:
        with asyncio.Runner(loop_factory=lambda: made.loop) as runner:
            runner.run(running.serve([usual, tight]))
            ended.set()

    ended = threading.Event()
    thread = threading.Thread(target=serve)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield made
    running.should_exit = True
    while not ended.wait(0.01):
        made.loop.call_soon_threadsafe(setattr, made.loop, "now", made.loop.now + 1)
    thread.join()


class Blockade:
    """What the app does at `/block`: it keeps the event loop until it is told to go on."""

    begun, over = threading.Event(), threading.Event()


async def _length(receive: Receive) -> int:
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message["body"]), message.get("more_body", False)
    return length


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    if scope["path"] == "/waits":
        await receive()
        while (await receive())["type"] != "http.disconnect":
            pass
        _left.set()
        return
    if scope["path"] == "/released":
        _held.set()
        await asyncio.to_thread(_released.wait, 60)
        await Response()(scope, receive, send)
        return
    if scope["path"] == "/length":
        await Response(str(await _length(receive)).encode())(scope, receive, send)
        return
    if scope["path"] in ("/small", "/counted"):
        _asked[scope["path"]] += 1
        await Response(b"")(scope, receive, send)
        return
    if scope["path"] == "/block":
        Blockade.begun.set()
        Blockade.over.wait(60)
    if scope["path"] == "/":
        await Response(_BODY)(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(len(_BODY) // _PIECE_BYTES):
        await send({"type": "http.response.body", "body": _BODY[:_PIECE_BYTES], "more_body": True})
    await send({"type": "http.response.body"})


def say(address: tuple[str, int], *pieces: bytes) -> bytes:
    """What a caller hears that sends these."""
    with socket.create_connection(address, timeout=60) as caller:
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            caller.sendall(piece)
        return hear(caller)


@pytest.mark.parametrize("request_bytes", [_REQUEST, _REQUEST_OF_PIECES])
def test_a_caller_who_takes_nothing_is_cut_off(server: Server, request_bytes: bytes) -> None:
    with socket.create_connection(server.usual, timeout=60) as caller:
        caller.sendall(request_bytes)
        assert caller.recv(12) == b"HTTP/1.1 200"
        server.cut_off(caller)
        assert len(hear(caller)) < len(_BODY)


def test_a_head_that_never_ends_is_cut_off(server: Server) -> None:
    """A byte now and then begins no new wait. Who sends nothing is cut off as soon."""
    with ExitStack() as opened:
        silent, slow = (opened.enter_context(socket.create_connection(server.usual, timeout=60)) for _ in range(2))
        server.hear(slow, b"GET /small HTTP/1.1\r\nx: ")
        while not server.has(silent):
            time.sleep(0.001)
        for _ in range(4):
            server.loop.let_pass(_STALL_SECONDS / 5)
            server.hear(slow, b"a")
        assert server.has(silent)
        assert server.has(slow)
        server.loop.let_pass(_STALL_SECONDS / 5)
        assert (hear(silent), hear(slow)) == (b"", b"")


def test_a_caller_who_takes_pieces_too_slowly_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although each of them leaves in less time than a caller may stand still."""
    monkeypatch.setattr(connection, "MIN_BYTES_PER_SECOND", 2**20)
    heard = 0
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        caller.settimeout(60)
        caller.connect(server.tight)
        caller.sendall(_REQUEST_OF_PIECES)
        assert caller.recv(12) == b"HTTP/1.1 200"
        while server.has(caller):
            server.loop.let_pass(0.02)
            heard += len(caller.recv(8 * 1024))
        # What the kernel had is still heard.
        assert heard + len(hear(caller)) < len(_BODY) // 2


@pytest.mark.parametrize("request_bytes", [_REQUEST, _REQUEST_OF_PIECES])
def test_a_caller_who_takes_its_time_gets_everything(server: Server, request_bytes: bytes) -> None:
    """Slower than the server waits for one that stands still, but steadily."""
    heard, started = 0, server.loop.now
    with socket.create_connection(server.usual, timeout=60) as caller:
        caller.sendall(request_bytes)
        while piece := caller.recv(256 * 1024):
            heard += len(piece)
            server.loop.let_pass(4 * _STALL_SECONDS * len(piece) / len(_BODY))
    assert heard > len(_BODY)
    assert server.loop.now - started > 2 * _STALL_SECONDS


def test_far_too_many_connections_are_closed_unheard(address: tuple[str, int]) -> None:
    most = _MAX_CONNECTIONS + connection.MAX_SURPLUS
    with ExitStack() as others:
        callers = [others.enter_context(socket.create_connection(address, timeout=60)) for _ in range(most)]
        callers[0].sendall(b"GET /pieces HTTP/1.1\r\nhost: a\r\n\r\n")
        assert callers[0].recv(12) == b"HTTP/1.1 200"
        with socket.create_connection(address, timeout=60) as one_more:
            assert hear(one_more) == b""
    with socket.create_connection(address, timeout=60) as caller:
        caller.sendall(_REQUEST)
        assert caller.recv(12) == b"HTTP/1.1 200"


def test_the_bytes_of_an_earlier_request_do_not_count_as_a_head(server: Server) -> None:
    """Although a head that is not complete came with them."""
    body = bytes(60 * 1024)
    first = b"POST /length HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    with socket.create_connection(server.usual, timeout=60) as caller:
        server.hear(caller, first * 4 + b"GET / HTTP/1.1\r\nconnection: ")
        caller.sendall(b"close\r\n\r\n")
        heard = hear(caller)
    assert heard.count(b"HTTP/1.1 200") == 5


def test_no_byte_of_a_head_counts_twice(server: Server) -> None:
    with socket.create_connection(server.usual, timeout=60) as caller:
        server.hear(caller, b"GET /length HTTP/1.1\r\n")
        for number in range(6):
            server.hear(caller, b"x-%d: %s\r\n" % (number, b"a" * 10 * 1024))
        caller.sendall(b"\r\n")
        assert caller.recv(12) == b"HTTP/1.1 200"


def test_a_header_that_begins_in_a_large_piece_counts_from_its_first_byte(server: Server) -> None:
    with socket.create_connection(server.usual, timeout=60) as caller:
        server.hear(caller, b"GET /length HTTP/1.1\r\nx: " + b"a" * 60 * 1024)
        with suppress(ConnectionError):
            caller.sendall(b"a" * 8 * 1024)
            assert hear(caller) == b""


@pytest.mark.parametrize(
    "line", [b"GET /%s HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nx: %s\r\n\r\n"], ids=["address", "header"]
)
def test_a_large_head_in_one_piece_is_refused(address: tuple[str, int], line: bytes) -> None:
    with socket.create_connection(address, timeout=60) as caller:
        with suppress(ConnectionError):
            caller.sendall(line % (b"a" * 100 * 1024))
        assert not hear(caller).startswith(b"HTTP/1.1 200")


def test_a_trailer_that_never_ends_is_cut_off(address: tuple[str, int]) -> None:
    """The parser would keep all of it."""
    with socket.create_connection(address, timeout=60) as caller:
        caller.sendall(b"POST /waits HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: ")
        with pytest.raises(ConnectionError):
            caller.sendall(b"a" * 64 * 1024 * 1024)


def test_requests_in_a_pipeline_without_headers_are_counted(address: tuple[str, int]) -> None:
    assert say(address, _LENGTH * 1000).count(b"HTTP/1.1 200") == connection._MAX_PIPELINED + 1


def test_as_many_requests_as_may_wait_are_answered(address: tuple[str, int]) -> None:
    heard = say(address, _LENGTH * connection._MAX_PIPELINED + _REQUEST.replace(b"/", b"/length", 1))
    assert heard.count(b"HTTP/1.1 200") == connection._MAX_PIPELINED + 1


def test_a_request_that_cannot_be_read_ends_the_connection_after_those_before_it(address: tuple[str, int]) -> None:
    """An answer to it would be taken for theirs."""
    heard = say(address, _LENGTH * 2 + b"nonsense\r\n\r\n")
    assert (heard.count(b"HTTP/1.1 200"), heard.count(b"HTTP/1.1")) == (2, 2)


# As Java's HttpClient begins each first request.
_UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize(
    ("asked", "answers"),
    [
        (b"POST /length HTTP/1.1\r\n" + _UPGRADE + b"content-length: 5\r\n\r\nGET /", [b"5"]),
        (b"POST /length HTTP/1.1\r\n" + _UPGRADE + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", [b"3"]),
        (b"GET /length HTTP/1.1\r\n" + _UPGRADE + b"\r\n", [b"0"]),
        (_LENGTH + b"POST /length HTTP/1.1\r\n" + _UPGRADE + b"content-length: 2\r\n\r\nab", [b"0", b"2"]),
    ],
    ids=["a body", "chunks", "no body", "after another"],
)  # fmt: skip
def test_an_upgrade_header_is_ignored(asked: bytes, answers: list[bytes], size: int, address: tuple[str, int]) -> None:
    """The request is answered with its body, and so are those around it, in whatever pieces they arrive."""
    sent = asked + b"GET /length HTTP/1.1\r\nconnection: close\r\n\r\n"
    heard = say(address, *(sent[start : start + size] for start in range(0, len(sent), size)))
    assert heard.count(b"HTTP/1.1 200") == len(answers) + 1
    assert re.findall(rb"\r\n\r\n(\d)", heard) == [*answers, b"0"]


@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize(
    ("head", "length"),
    [
        (b"POST /length HTTP/1.1\r\nConnection: close, Upgrade\r\nUpgrade: h2c\r\ncontent-length: 2\r\n\r\nab", b"2"),
        (b"GET /length HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", b"0"),
    ],
    ids=["close", "HTTP/1.0"],
)  # fmt: skip
def test_an_upgrade_header_is_ignored_where_the_connection_ends(head, length, size, address):
    heard = say(address, *(head[start : start + size] for start in range(0, len(head), size)))
    assert heard.count(b" 200 OK") == 1
    assert heard.endswith(b"\r\n\r\n" + length)


def test_a_tunnel_is_refused(address: tuple[str, int]) -> None:
    """What follows CONNECT is no request, so the connection ends."""
    heard = say(address, b"CONNECT /length HTTP/1.1\r\ncontent-length: 2\r\n\r\nab" + _LENGTH)
    assert heard.startswith(b"HTTP/1.1 400")
    assert heard.count(b"HTTP/1.1 ") == 1


def test_what_follows_a_request_that_cannot_be_read_is_ignored(server: Server) -> None:
    """It used to break the connection before the answers to the requests in front of it."""
    _released.clear()
    with socket.create_connection(server.usual, timeout=60) as caller:
        for piece in (_RELEASED, b"n", b"onsense\r\n", b"\r\n"):
            server.hear(caller, piece)
        _released.set()
        assert hear(caller).count(b"HTTP/1.1 200") == 1


def test_a_request_that_is_cut_off_with_those_after_it_hears_of_it(address: tuple[str, int]) -> None:
    """One that waits is broken; the one before it computes no longer for a caller that is cut off."""
    _left.clear()
    assert say(address, _WAITS + b"POST /length HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nnonsense") == b""
    assert _left.wait(60)


def test_nothing_is_read_while_a_request_waits(address: tuple[str, int]) -> None:
    """A caller that sends on is held up: the server keeps no more than a piece."""
    _released.clear()
    body = bytes(8 * 1024 * 1024)
    requests = (_LENGTH.replace(b"\r\n\r\n", b"\r\ncontent-length: %d\r\n\r\n" % len(body)) + body) * 8
    with socket.create_connection(address, timeout=60) as caller:
        caller.sendall(_RELEASED + _LENGTH)
        caller.settimeout(1)
        with pytest.raises(TimeoutError):
            caller.sendall(requests)
        _released.set()


def test_the_clock_of_a_head_stands_still_while_nothing_is_read(server: Server) -> None:
    _held.clear()
    _released.clear()
    with socket.create_connection(server.usual, timeout=60) as caller:
        caller.sendall(_RELEASED + _LENGTH + b"GET /length HTTP/1.1\r\n")
        assert _held.wait(60)
        server.loop.let_pass(2 * _STALL_SECONDS)
        _released.set()
        caller.sendall(b"connection: close\r\n\r\n")
        assert hear(caller).count(b"HTTP/1.1 200") == 3


def test_empty_lines_hold_no_connection(server: Server) -> None:
    with socket.create_connection(server.usual, timeout=60) as caller:
        caller.sendall(_LENGTH)
        assert caller.recv(12) == b"HTTP/1.1 200"
        caller.sendall(b"\r\n")
        server.cut_off(caller)


def test_a_request_whose_caller_has_left_never_begins(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=60) as caller, socket.create_connection(address) as blocker:
        caller.sendall(_request("/small"))
        assert caller.recv(12) == b"HTTP/1.1 200"
        blocker.sendall(_request("/block"))
        assert Blockade.begun.wait(60)
        caller.sendall(_request("/counted"))
        caller.close()
        Blockade.over.set()
        assert blocker.recv(12) == b"HTTP/1.1 200"
    with socket.create_connection(address, timeout=60) as another:
        another.sendall(_request("/small"))
        assert another.recv(12) == b"HTTP/1.1 200"
    assert _asked == {"/small": 2}


def _request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as near:
        far, _ = listening.accept()
        with far:
            yield near, far


def test_a_connection_is_closed_once_its_caller_has_left(ends: tuple[socket.socket, socket.socket]) -> None:
    """Not while it waits for an answer; what it has sent before can still be read."""
    caller, connection = ends
    caller.sendall(b"a request")
    assert not has_closed(connection)
    caller.close()
    assert has_closed(connection)
    assert connection.recv(100) == b"a request"


def test_a_connection_that_broke_off_is_closed(ends: tuple[socket.socket, socket.socket]) -> None:
    caller, connection = ends
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.close()
    assert has_closed(connection)


def test_where_the_kernel_does_not_tell_it_is_open() -> None:
    one, other = socket.socketpair()
    with one:
        other.close()
        assert not has_closed(one)


def test_one_private_part_of_the_frameworks_is_used() -> None:
    frameworks = r"(?:from|import) (?:uvicorn|starlette|fastapi|httptools)[\w.]*?(?:\.| import .*)(\b_\w+)"
    used = {
        (path.name, name)
        for path in Path(peltier_server.__file__).parent.rglob("*.py")
        for pattern in (frameworks, r"super\(\)\.(_[a-z]\w*)")
        for name in re.findall(pattern, path.read_text())
    }
    assert used == {("connection.py", "_start_asgi_task")}
    assert list(inspect.signature(HttpToolsProtocol._start_asgi_task).parameters) == ["self", "cycle", "app"]
    for starts in (HttpToolsProtocol.on_headers_complete, HttpToolsProtocol.on_response_complete):
        assert "self._start_asgi_task(" in inspect.getsource(starts)


# What is read beyond `max_connections`.
MANY = 3


def test_beyond_the_most_connections_only_probes_are_answered(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others read 503 and are closed; open connections continue, and one that closes makes room."""
    monkeypatch.setattr(connection, "_SURPLUS_SECONDS", 60)
    with listen(max_connections=MANY) as listening, ExitStack() as others:
        clients = [others.enter_context(httpx2.Client(base_url=listening.url, timeout=60)) for _ in range(MANY)]
        assert [client.get("/info").status_code for client in clients] == [200] * MANY
        refused = httpx2.get(f"{listening.url}/info", timeout=60)
        assert refused.json()["error"]["message"] == "3 connections are open, and this server holds no more"
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.headers["connection"] == "close"
        assert "x-request-id" in refused.headers
        for path in ("/health", "/ready"):
            assert httpx2.get(f"{listening.url}{path}", timeout=60).status_code == 200
        sent = httpx2.post(f"{listening.url}/v1/predict", content=bytes(2**20), timeout=60)
        assert sent.status_code == 503
        assert clients[0].get("/info").status_code == 200
        clients[0].close()
        while httpx2.get(f"{listening.url}/info", timeout=60).status_code == 503:
            pass


def test_an_idle_connection_makes_room_for_a_new_one(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest idle one, whether it has never sent a request or waits for the next; none with a request."""
    monkeypatch.setattr(connection, "_KEPT_IDLE", 1)
    with listen(max_connections=MANY) as listening, ExitStack() as others:
        url = httpx2.URL(listening.url)

        def connect() -> socket.socket:
            return others.enter_context(socket.create_connection((url.host, url.port or 0), timeout=60))

        busy, silent = connect(), connect()
        busy.sendall(b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{")
        waits = others.enter_context(httpx2.Client(base_url=listening.url, timeout=60))
        assert waits.get("/info").status_code == 200
        for _ in range(2 * MANY):
            newcomer = connect()
            newcomer.sendall(b"GET /info HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert newcomer.recv(12) == b"HTTP/1.1 200"
        with suppress(ConnectionError):
            assert silent.recv(1) == b""
        busy.sendall(b"}")
        assert busy.recv(12) == b"HTTP/1.1 400"
