"""`GET /routing-metrics`, on an address of its own and without a key.

The connection parses HTTP itself, with httptools. The app behind uvicorn takes 0.15 ms for an empty answer, which is
most of what a page may take that is read twenty times a second.
"""

import asyncio
import socket
from http import HTTPStatus
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from peltier_client.errors import MethodNotAllowed, NotFound, PeltierError

from peltier_server.errors import PELTIER_ERRORS
from peltier_server.http.lifecycle import Lifecycle
from peltier_server.http.routing_metrics import RoutingMetrics
from peltier_server.settings import Settings

PATH = "/routing-metrics"

_TEXT, _JSON = "text/plain; version=0.0.4; charset=utf-8", "application/json"
_MAX_HEAD_BYTES = 16 * 1024
# A page is smaller. A connection whose picker leaves more unread is closed.
_MAX_UNREAD_BYTES = 1024 * 1024
_MAX_CONNECTIONS = 64


class RoutingServer:
    """Answers the requests on one listening socket, in the running event loop."""

    def __init__(self, lifecycle: Lifecycle, settings: Settings) -> None:
        routing = settings.routing
        self._lifecycle = lifecycle
        self._gauges = RoutingMetrics(prefix=routing.routing_prefix, max_names=routing.max_routing_names)
        self._server: asyncio.Server | None = None
        self.stall_seconds = settings.limits.stall_seconds
        self.connections = set[asyncio.Transport]()

    async def start(self, listener: socket.socket) -> None:
        """Accepts connections from now on."""
        self._server = await asyncio.get_running_loop().create_server(lambda: _Connection(self), sock=listener)

    def close(self) -> None:
        """Closes the socket and the connections."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close()

    def answer(self, method: str, path: str) -> bytes:
        """The whole answer to a request: the page, 404 for another path, 405 for another method, 503 while there is no
        service."""
        try:
            page = self._page(method, path)
        except PeltierError as error:
            return _write(HTTPStatus(error.status), _JSON, PELTIER_ERRORS.body(error).model_dump_json())
        return _write(HTTPStatus.OK, _TEXT, page)

    def _page(self, method: str, path: str) -> str:
        if path != PATH:
            raise NotFound(f"this address serves {PATH} only")
        if method != "GET":
            raise MethodNotAllowed(f"this address accepts GET, not {method}")
        # A draining server still has the rows of its last requests.
        return self._gauges.page(self._lifecycle.service(admitted=True))


class _Connection(asyncio.Protocol):
    """One connection, answered request by request. The server closes it if a request does not arrive in time or is too
    large, if its caller sends a request before the answer to the last one, and if it does not read the answers."""

    def __init__(self, server: RoutingServer) -> None:
        self._server = server
        self._parser: Any = HttpRequestParser(self)
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._path = b""
        self._num_bytes, self._has_answered = 0, False
        self._heard_at = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if len(self._server.connections) >= _MAX_CONNECTIONS:
            self._transport.abort()
            return
        self._server.connections.add(self._transport)
        self._transport.set_write_buffer_limits(_MAX_UNREAD_BYTES)
        self._clock = self._loop.call_later(self._server.stall_seconds, self._check_time)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport in self._server.connections:
            self._server.connections.discard(self._transport)
            self._clock.cancel()

    def pause_writing(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._num_bytes += len(data)
        self._has_answered = False
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._transport.abort()
        if self._num_bytes > _MAX_HEAD_BYTES:
            self._transport.abort()

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_message_complete(self) -> None:
        if self._has_answered:
            self._transport.abort()
        if self._transport.is_closing():
            return
        path, self._path, self._num_bytes = self._path.partition(b"?")[0], b"", 0
        self._has_answered, self._heard_at = True, self._loop.time()
        self._transport.write(self._server.answer(self._parser.get_method().decode("latin-1"), path.decode("latin-1")))
        if not self._parser.should_keep_alive():
            self._transport.close()

    def _check_time(self) -> None:
        left = self._heard_at + self._server.stall_seconds - self._loop.time()
        if left <= 0:
            self._transport.abort()
        else:
            self._clock = self._loop.call_later(left, self._check_time)


def _write(status: HTTPStatus, content_type: str, text: str) -> bytes:
    body = text.encode()
    allow = "allow: GET\r\n" if status == HTTPStatus.METHOD_NOT_ALLOWED else ""
    described = f"content-type: {content_type}\r\ncontent-length: {len(body)}\r\n"
    return f"HTTP/1.1 {status} {status.phrase}\r\n{allow}{described}\r\n".encode() + body
