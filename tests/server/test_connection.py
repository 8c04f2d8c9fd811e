"""What a connection is held to, over a real socket with an app that answers a lot."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from peltier_server.connection import connection_class
from starlette.responses import Response

from tests.server.attacker import listen

_BODY = bytes(24 * 1024 * 1024)
_REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
_STALL_SECONDS = 0.5


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """Where the app answers."""
    config = uvicorn.Config(Response(_BODY), http=connection_class(_STALL_SECONDS), ws="none", port=0, log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()
    server.should_exit = True
    thread.join()


def test_a_caller_who_takes_nothing_is_cut_off(address: tuple[str, int]) -> None:
    """And with it goes what was kept for it."""
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(_REQUEST)
        time.sleep(4 * _STALL_SECONDS)
        assert len(listen(connection)) < len(_BODY)


def test_a_caller_who_takes_its_time_gets_everything(address: tuple[str, int]) -> None:
    """Slower than the server waits for one that stands still, but steadily."""
    heard, started = 0, time.monotonic()
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(_REQUEST)
        while piece := connection.recv(256 * 1024):
            heard += len(piece)
            time.sleep(0.02)
    assert heard > len(_BODY)
    assert time.monotonic() - started > 2 * _STALL_SECONDS
