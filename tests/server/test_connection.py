"""What a connection is held to, over a real socket with an app that answers a lot."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

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


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """Where the app answers."""
    http = connection.connection_class(_STALL_SECONDS)
    config = uvicorn.Config(_answer, http=http, ws="none", port=0, log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()
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


def test_a_caller_who_takes_pieces_too_slowly_is_cut_off(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although each of them leaves in less time than a caller may stand still."""
    monkeypatch.setattr(connection, "MIN_BYTES_PER_SECOND", 2**20)
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        caller.settimeout(20)
        caller.connect(address)
        caller.sendall(_REQUEST_OF_PIECES)
        heard, piece = 0, b" "
        with suppress(ConnectionError):
            while piece and heard < len(_BODY) // 4:
                time.sleep(0.02)
                piece = caller.recv(8 * 1024)
                heard += len(piece)
    assert heard < len(_BODY) // 4


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
