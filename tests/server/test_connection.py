"""What a connection is held to, over a real socket with an app that answers a lot."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
import uvicorn
from peltier_server import connection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tests.server.attacker import listen

_PIECE_BYTES = 64 * 1024
_BODY = bytes(24 * 1024 * 1024)
_REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
_REQUEST_OF_PIECES = _REQUEST.replace(b"/", b"/pieces", 1)
_STALL_SECONDS = 0.5
_MAX_CONNECTIONS = 4


class Addresses(NamedTuple):
    """Of one server. Behind `tight` the kernel keeps little of an answer, so that the server sees what callers take."""

    usual: tuple[str, int]
    tight: tuple[str, int]


@pytest.fixture
def address(addresses: Addresses) -> tuple[str, int]:
    """The usual one."""
    return addresses.usual


@pytest.fixture(scope="module")
def addresses() -> Iterator[Addresses]:
    """Where the app answers."""
    http = connection.connection_class(_STALL_SECONDS, _MAX_CONNECTIONS)
    config = uvicorn.Config(_answer, http=http, ws="none", port=0, log_config=None)
    server = uvicorn.Server(config)
    usual, tight = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    # Its connections inherit it.
    tight.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 * 1024)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([usual, tight])))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield Addresses(usual.getsockname(), tight.getsockname())
    server.should_exit = True
    thread.join()


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    if scope["path"] == "/":
        await Response(_BODY)(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(len(_BODY) // _PIECE_BYTES):
        await send({"type": "http.response.body", "body": _BODY[:_PIECE_BYTES], "more_body": True})
    await send({"type": "http.response.body"})


@pytest.mark.parametrize("request_bytes", [_REQUEST, _REQUEST_OF_PIECES])
def test_a_caller_who_takes_nothing_is_cut_off(address: tuple[str, int], request_bytes: bytes) -> None:
    """And with it goes what was kept for it."""
    with socket.create_connection(address, timeout=20) as caller:
        caller.sendall(request_bytes)
        time.sleep(4 * _STALL_SECONDS)
        assert len(listen(caller)) < len(_BODY)


def test_a_caller_who_takes_pieces_too_slowly_is_cut_off(addresses: Addresses, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although each of them leaves in less time than a caller may stand still."""
    monkeypatch.setattr(connection, "MIN_BYTES_PER_SECOND", 2**20)
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        caller.settimeout(20)
        caller.connect(addresses.tight)
        caller.sendall(_REQUEST_OF_PIECES)
        for _ in range(int(4 * _STALL_SECONDS / 0.02)):
            time.sleep(0.02)
            caller.recv(8 * 1024)
        # What the kernel had is still heard.
        assert len(listen(caller)) < len(_BODY) // 2


@pytest.mark.parametrize("request_bytes", [_REQUEST, _REQUEST_OF_PIECES])
def test_a_caller_who_takes_its_time_gets_everything(address: tuple[str, int], request_bytes: bytes) -> None:
    """Slower than the server waits for one that stands still, but steadily."""
    heard, started = 0, time.monotonic()
    with socket.create_connection(address, timeout=20) as caller:
        caller.sendall(request_bytes)
        while piece := caller.recv(256 * 1024):
            heard += len(piece)
            time.sleep(0.02)
    assert heard > len(_BODY)
    assert time.monotonic() - started > 2 * _STALL_SECONDS


def test_far_too_many_connections_are_closed_unheard(address: tuple[str, int]) -> None:
    """Those that are there go on, and there is room once one has gone."""
    most = _MAX_CONNECTIONS + connection._MAX_SURPLUS
    with ExitStack() as others:
        callers = [others.enter_context(socket.create_connection(address, timeout=20)) for _ in range(most)]
        callers[0].sendall(b"GET /pieces HTTP/1.1\r\nhost: a\r\n\r\n")
        assert callers[0].recv(12) == b"HTTP/1.1 200"
        with socket.create_connection(address, timeout=20) as one_more:
            assert listen(one_more) == b""
    with socket.create_connection(address, timeout=20) as caller:
        caller.sendall(_REQUEST)
        assert caller.recv(12) == b"HTTP/1.1 200"
