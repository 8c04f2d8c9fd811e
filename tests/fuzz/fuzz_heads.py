r"""Fuzzes the server's side of a connection: heads of requests, lengths, chunks, and many requests on one connection.

    python tests/fuzz/fuzz_heads.py CORPUS -dict=tests/fuzz/heads.dict -max_total_time=600

The bytes arrive once in one piece and once in pieces, and an app that reads every body answers. It ends with an
exception, a status 5xx, an answer that a parser of HTTP cannot read, or other requests in pieces than in one.
"""

import asyncio
import logging
import socket
import sys
from typing import Any

import atheris
import httptools
import uvicorn
from uvicorn.server import ServerState

with atheris.instrument_imports(include=["peltier_server.http.connection", "uvicorn.protocols.http"]):
    from peltier_server.http.connection import connection_class

logging.disable()  # a line for each invalid request
_TURNS = 24
_listener = socket.create_server(("127.0.0.1", 0))
_caller = socket.create_connection(_listener.getsockname())
_accepted = _listener.accept()[0]
_loop = asyncio.new_event_loop()
_requests: list[tuple[str, bytes, bytes]] = []
_failures: list[dict[str, Any]] = []
_loop.set_exception_handler(lambda _, context: _failures.append(context))


class FuzzedTransport(asyncio.Transport):
    """Keeps what is written until it is closed, as transports of sockets do, over a socket that stays open."""

    def __init__(self) -> None:
        super().__init__({"socket": _accepted, "peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.closed:
            self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


class _Statuses:
    """Reads answers."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.found: list[int] = []

    def on_headers_complete(self) -> None:
        self.found.append(self.parser.get_status_code())


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Reads the whole body, and answers unless the caller leaves."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message["body"], message.get("more_body", False)
    _requests.append((scope["method"], scope["raw_path"], body))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


_config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, ws="none")
_config.load()
_Connection = connection_class(30.0, 1000)


async def serve(pieces: list[bytes]) -> list[tuple[str, bytes, bytes]]:
    """The requests that reach the app; checks what it and the connection answer."""
    _requests.clear()
    state, transport = ServerState(), FuzzedTransport()
    connection = _Connection(config=_config, server_state=state, app_state={}, _loop=_loop)
    connection.connection_made(transport)
    for piece in pieces:
        if not transport.closed:
            connection.data_received(piece)
    await _turns()
    connection.connection_lost(None)
    await _turns()
    assert not state.tasks, "a request is never answered"
    assert not _failures, _failures
    answers = _Statuses()
    # The parser does not know that answers to HEAD have no body; here none has a body but the 400 at the end.
    answers.parser.feed_data(transport.written)
    assert all(status < 500 for status in answers.found), answers.found
    return list(_requests)


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def fuzz(data: bytes) -> None:
    """The same bytes twice; the first byte is the size of the pieces."""
    if len(data) > 1:
        size = data[0] % 32 + 1
        whole = _loop.run_until_complete(serve([data[1:]]))
        pieces = _loop.run_until_complete(serve([data[at : at + size] for at in range(1, len(data), size)]))
        assert whole == pieces, (whole, pieces)


if __name__ == "__main__":
    atheris.Setup([*sys.argv, "-timeout=60", "-rss_limit_mb=2048"], fuzz)
    atheris.Fuzz()
