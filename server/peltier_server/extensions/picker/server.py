"""`GET /routing-metrics`, on an address of its own and without a key: the gauges by which endpoint pickers choose a
replica.

Endpoint pickers follow the Gateway API Inference Extension, as llm-d-router does. They read the gauges of every replica
up to twenty times a second, with the names and labels of vLLM's:

- `lora_requests_info` has its information in labels, which list names separated by commas, and the time as its value.
- `num_requests_waiting` and `num_requests_running` count requests, here rows: an input, or a window of a long one.
- `kv_cache_usage_perc` is a share from 0 to 1 of memory in use, here of the adapters on the device.

The connection parses HTTP itself, with httptools. The app behind uvicorn takes 0.15 ms for an empty answer, which is
most of what a page may take that is read so often.
"""

import asyncio
import socket
import time
from collections.abc import Iterable
from http import HTTPStatus
from itertools import chain, islice
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from peltier_client.errors import MethodNotAllowed, NotFound, PeltierError

from peltier_server.errors import PELTIER_ERRORS
from peltier_server.extensions.picker.settings import RoutingSettings
from peltier_server.http.lifecycle import Lifecycle
from peltier_server.http.listener import Listener
from peltier_server.service import Service
from peltier_server.settings import CoreSettings

PATH = "/routing-metrics"
MAX_CONNECTIONS = 64

_TEXT, _JSON = "text/plain; version=0.0.4; charset=utf-8", "application/json"
_MAX_HEAD_BYTES = 16 * 1024
# A page is smaller. A connection whose picker leaves more unread is closed.
_MAX_UNREAD_BYTES = 1024 * 1024
_GAUGES = (
    ("num_requests_running", "Rows and texts that are computed", " {running}"),
    ("num_requests_waiting", "Rows in the queue, and adapters that are loaded", " {waiting}"),
    ("kv_cache_usage_perc", "Share of the device's memory for adapters that is in use", " {usage}"),
    (
        "lora_requests_info",
        "Adapters on the device and adapters that are loaded; the value is the time",
        '{{max_lora="{max_lora}",running_lora_adapters="{on_device}",waiting_lora_adapters="{loading}"}} {now}',
    ),
)


class RoutingServer:
    """Answers the requests on one listening socket, in the running event loop."""

    def __init__(self, lifecycle: Lifecycle, settings: CoreSettings) -> None:
        routing = settings.group(RoutingSettings)
        self._lifecycle = lifecycle
        self._gauges = RoutingMetrics(prefix=routing.routing_prefix, max_names=routing.max_routing_names)
        self._listening: socket.socket | None = None
        self._listener: Listener | None = None
        self.stall_seconds = settings.limits.stall_seconds
        # The first one has had no request for the longest time.
        self.connections = dict[asyncio.Transport, None]()

    def start(self, listening: socket.socket) -> None:
        """Accepts connections from now on, in the running event loop. Beyond 64, a new one takes the place of the
        longest idle one."""
        self._listening = listening
        self._listener = Listener(listening, lambda: _Connection(self))

    def add(self, connection: asyncio.Transport) -> None:
        """A connection that has begun, or has a request."""
        self.connections.pop(connection, None)
        if len(self.connections) >= MAX_CONNECTIONS:
            longest = next(iter(self.connections))
            del self.connections[longest]
            longest.abort()
        self.connections[connection] = None

    async def close(self) -> None:
        """Closes the socket and the connections."""
        if self._listener is not None and self._listening is not None:
            self._listener.close()
            self._listening.close()
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
        self._server.add(self._transport)
        self._transport.set_write_buffer_limits(_MAX_UNREAD_BYTES)
        self._clock = self._loop.call_later(self._server.stall_seconds, self._check_time)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.pop(self._transport, None)
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
        self._server.add(self._transport)
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


class RoutingMetrics:
    """The page of the gauges.

    An adapter on the device is running, because it answers at once, and an adapter that is being loaded is waiting. An
    idle adapter can be evicted, so only leased ones use memory. `max_lora` is the number of the listed names and of the
    adapters that fit beside them without an eviction. So a picker sees free room exactly if there is some, also where
    the device has more adapters than are listed.
    """

    def __init__(self, *, prefix: str, max_names: int) -> None:
        """`prefix` begins the name of each gauge. At most `max_names` names are listed, those of the most recently used
        adapters first."""
        self._max_names = max_names
        self._page = "".join(
            f"# HELP {prefix}{name} {text}\n# TYPE {prefix}{name} gauge\n{prefix}{name}{sample}\n"
            for name, text, sample in _GAUGES
        )

    def page(self, service: Service) -> str:
        """The gauges now, as Prometheus' text. Its time depends on `max_names`, not on the number of adapters."""
        slots, batcher, names_of = service.slots, service.batcher, service.catalog.references
        on_device = self._names(chain.from_iterable(map(names_of, slots.device.loaded())))
        loading = self._names(chain.from_iterable(map(names_of, slots.loading())))
        return self._page.format(
            running=batcher.running_rows,
            waiting=batcher.queued_rows + slots.num_loading,
            usage=slots.device.leased_share,
            max_lora=len(on_device) + len(loading) + slots.device.num_free,
            on_device=",".join(on_device),
            loading=",".join(loading),
            now=round(time.time(), 3),
        )

    def _names(self, names: Iterable[str]) -> dict[str, None]:
        # Adapters of two tenants may have the same name.
        return dict.fromkeys(islice(names, self._max_names))
