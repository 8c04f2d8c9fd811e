"""One TCP connection, closed when its caller sends no requests or does not read the answers.

This is the only module that uses a private part of uvicorn, starlette or FastAPI: it overrides `_start_asgi_task` of
uvicorn's connection. Nothing public tells which of several pipelined requests begins to be answered.
"""

import asyncio
import socket
from asyncio import TimerHandle, Transport
from collections.abc import Callable
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from peltier_server.http.incoming import MIN_BYTES_PER_SECOND, WHOLE

# The parser has no limit of its own and would keep a larger head in memory.
MAX_HEAD_BYTES = 64 * 1024

# The most requests that may wait on a connection for the answer to an earlier one.
_MAX_PIPELINED = 16
# The most surplus connections, which answer 503 to everything except the front page and the probes.
MAX_SURPLUS = 64
# Idle connections that a new one never displaces. So a caller has time to send a request after it has connected.
_KEPT_IDLE = 64
# The time that a surplus connection has for the head of its request.
_SURPLUS_SECONDS = 2.0

# On Linux tcp_info begins with the state (net/tcp_states.h). macOS has another name for it.
_TCP_INFO = getattr(socket, "TCP_INFO", None)
_ESTABLISHED = 1


class RequestHead:
    """Calls `give_up` when a head takes longer than `seconds`. Its timer stops while the server does not read. The
    connection calls `keep_time` whenever it has parsed what has arrived, so a head in one piece needs no timer.

    The parser reports each complete part. The last line of the chunk of its last report, and the bytes of all chunks
    since then, count as an unfinished header. So no byte of an earlier request on the connection counts, and no byte
    counts twice.
    """

    def __init__(self, seconds: float, give_up: Callable[[], None]) -> None:
        self._seconds = seconds
        self._give_up = give_up
        self._clock: TimerHandle | None = None
        self._is_open = self._is_paused = self._is_reported = False
        self._num_reported = self._num_unreported = 0

    @property
    def is_open(self) -> bool:
        """Whether a head is expected, or has begun and not ended."""
        return self._is_open

    @property
    def is_too_large(self) -> bool:
        """Whether a head, or the trailer of a body, has more than `MAX_HEAD_BYTES`."""
        return self._num_reported + self._num_unreported > MAX_HEAD_BYTES

    def begin(self) -> None:
        """Notes that a head is expected, or begins. A timer that already runs continues."""
        self._num_reported = self._num_unreported = 0
        self._is_open = True

    def receive(self, num_bytes: int) -> None:
        """Counts a chunk of `num_bytes` that the connection gives to the parser. The parser calls `report` for the
        parts that it finds.
        """
        self._num_unreported += num_bytes
        self._is_reported = False

    def report(self, num_bytes: int) -> None:
        """Counts `num_bytes` that the parser has found of the line, a header or a trailer; 0 for any other part."""
        self._num_reported += num_bytes
        self._num_unreported = 0
        self._is_reported = True

    def keep_last_line(self, chunk: bytes) -> None:
        """Counts the last line of a parsed chunk, if the parser has reported a part of the chunk."""
        if self._is_open and self._is_reported:
            self._num_unreported = len(chunk) - (chunk.rfind(b"\n") + 1)

    def end(self) -> None:
        """Notes that the head is complete, or that the connection has closed."""
        self._num_reported = self._num_unreported = 0
        self._is_open = False
        self._stop_clock()

    def pause(self) -> None:
        """Stops the timer while the server does not read."""
        self._is_paused = True
        self._stop_clock()

    def resume(self) -> None:
        """Starts the timer again when the server reads on. An incomplete head gets the full `seconds` again."""
        self._is_paused = False
        self.keep_time()

    def keep_time(self) -> None:
        """Starts the timer if it has to run and does not."""
        if self._clock is None and self._is_open and not self._is_paused:
            self._clock = asyncio.get_running_loop().call_later(self._seconds, self._give_up)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None


class AnswerOutput:
    """The transport of a connection. Two writes take the kernel twice as long as one, so the head of an answer waits
    for the first bytes of the body. It leaves alone if they do not follow before the next turn of the event loop.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._expected: RequestResponseCycle | None = None
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def expect_head(self, cycle: RequestResponseCycle) -> None:
        """Says that the first write after the beginning of this answer is its head."""
        self._expected = cycle

    def write(self, data: bytes) -> None:
        """Writes `data`, or keeps it if it is a head."""
        if self._expected is not None and self._expected.response_started:
            self._flush()
            self._expected, self._head = None, data
            asyncio.get_running_loop().call_soon(self._flush)
            return
        head, self._head = self._head, b""
        self._transport.write(head + data if head else data)

    def close(self) -> None:
        """Closes the transport once everything is written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)


class _RequestParser(HttpRequestParser):
    """Parses a request with an `upgrade` header like any other, because a server may ignore the header (RFC 9110, 7.8).
    httptools takes everything after such a head, also the body, for data of the other protocol. So what follows is
    parsed by a new parser, after the head without the header."""

    def __init__(self, connection: "LimitedConnection") -> None:
        super().__init__(connection)
        self._connection = connection
        # An answer to the first of several requests may close the connection (uvicorn's setting).
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]  # asyncio gives bytes
        parser = self
        while data:
            try:
                return HttpRequestParser.feed_data(parser, data)
            except HttpParserUpgrade as upgrade:
                # This one may have ended: it discards what follows a request that asks for the end of the connection.
                self._connection.parser = parser = _RequestParser(self._connection)
                data = self._connection.take_head() + data[upgrade.args[0] :]


class LimitedConnection(HttpToolsProtocol):
    """uvicorn's connection, with limits on time and size. A subclass sets `stall_seconds` and `max_connections`.

    The server closes the connection when the head of a request takes longer than `stall_seconds` or is larger than 64
    KiB, when more than 16 requests wait on it, when the caller delays an answer for `stall_seconds` in total (bytes
    that the caller takes give time back, at 16 KiB/s), and when bytes arrive although the caller has closed the
    connection. While a request waits, the server reads nothing more from the connection.

    A connection is idle while its caller has no request in progress. Beyond `max_connections`, a new connection
    displaces the longest idle one if more than 64 are idle. Else it is surplus: the state of its requests has the limit
    as `surplus`, and the head of its request must arrive within two seconds. Connections beyond 64 surplus ones are
    closed at once.
    """

    stall_seconds: float
    max_connections: int
    # The longest idle one is the first.
    idle: dict["LimitedConnection", None]

    def connection_made(self, transport) -> None:  # type: ignore[no-untyped-def]
        self._write: TimerHandle | None = None
        # How long the caller may still delay the answer. One pause of writing covers only one piece of the answer.
        self._patience = self.stall_seconds
        self._paused_at, self._unsent = 0.0, 0
        self._running: RequestResponseCycle | None = None
        self._is_ending = False
        self._new_head = b""
        self.parser = _RequestParser(self)
        # The transport's own object would create a socket for each call. This one does not own the file descriptor.
        self._socket = socket.socket(fileno=transport.get_extra_info("socket").fileno())
        self._output = AnswerOutput(transport)
        super().connection_made(cast("Transport", self._output))
        num_surplus = len(self.connections) - self.max_connections
        if num_surplus > 0 and self._displace():
            num_surplus -= 1
        seconds = self.stall_seconds if num_surplus <= 0 else min(self.stall_seconds, _SURPLUS_SECONDS)
        self._head = RequestHead(seconds, transport.abort)
        self.flow = _Flow(self, self._head)
        if num_surplus > MAX_SURPLUS:
            transport.abort()
            return
        if num_surplus > 0:
            self.app_state = {**self.app_state, "surplus": self.max_connections}
        else:
            self.idle[self] = None
        self._head.begin()
        self._head.keep_time()

    def _displace(self) -> bool:
        """Whether there was an idle connection to close: one that owes no bytes of an answer."""
        if len(self.idle) <= _KEPT_IDLE:
            return False
        longest = next((one for one in self.idle if not one.transport.get_write_buffer_size()), None)
        if longest is None:
            return False
        del self.idle[longest]
        self.connections.discard(longest)
        longest.transport.abort()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.idle.pop(self, None)
        self._socket.detach()
        self._head.end()
        self.resume_writing()
        super().connection_lost(exc)
        # uvicorn notifies only the latest request, which may be one that waits.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def data_received(self, data: bytes) -> None:
        if has_closed(self._socket):
            # The caller will not read an answer. The server would read the end of the connection only after all earlier
            # bytes.
            self.transport.abort()
            return
        if self._is_ending:
            return
        self._head.receive(len(data))
        super().data_received(data)
        self._head.keep_last_line(data)
        if self._head.is_too_large:
            self.transport.abort()
        elif self._is_idle and not self._head.is_open:
            # The bytes held no request, but they have stopped uvicorn's timer for idle connections.
            self._head.begin()
        self._head.keep_time()

    def send_400_response(self, msg: str) -> None:
        # The caller would take a 400 for the answer to an earlier request, or for a part of that answer.
        if self._is_idle:
            super().send_400_response(msg)
        elif self._head.is_open:
            # All requests in progress are complete, so the server answers them before it closes the connection. The
            # parser has failed and would refuse what arrives until then once more.
            self._head.end()
            self.cycle.keep_alive = False
            self._is_ending = True
        elif self.pipeline or self.cycle.response_started:
            self.transport.abort()
        else:
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head.begin()

    def on_url(self, url: bytes) -> None:
        self._head.report(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head.report(len(name) + len(value))
        if self._head.is_too_large:
            raise HttpParserError("the head of the request is too large")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise HttpParserError("the request asks for a tunnel")
            self._new_head = self._without_upgrade()
            return
        if len(self.pipeline) >= _MAX_PIPELINED:
            raise HttpParserError("too many requests wait on the connection")
        self._head.end()
        self.idle.pop(self, None)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head.report(0)
        super().on_body(body)

    def _without_upgrade(self) -> bytes:
        """The head that has just been parsed, without its `upgrade` header."""
        line = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        headers = [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([line, *headers, b"", b""])

    def take_head(self) -> bytes:
        """The head to parse in place of the one with an `upgrade` header."""
        head, self._new_head = self._new_head, b""
        return head

    def on_message_complete(self) -> None:
        if self._new_head:
            return
        # The app of this request runs once all bytes are parsed that have arrived with its head.
        self.scope["state"][WHOLE] = True
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        self._output.expect_head(cycle)
        super()._start_asgi_task(cycle, app)

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write is None:
            self._watch_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write is not None:
            self._write.cancel()
            self._write = None
            self._count_taken()

    def on_response_complete(self) -> None:
        self._patience = self.stall_seconds
        super().on_response_complete()
        if not self.transport.is_closing():
            if self._is_idle:
                self.idle[self] = None
            self.flow.resume_reading()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        # The transport closes only after the caller has taken the bytes that are still to be sent.
        self.loop.call_later(self.stall_seconds, self.transport.abort)

    def _watch_writing(self) -> None:
        self._paused_at, self._unsent = self.loop.time(), self.transport.get_write_buffer_size()
        self._write = self.loop.call_later(self._patience, self._judge_writing)

    def _judge_writing(self) -> None:
        if self._count_taken():
            self._watch_writing()
        else:
            self.transport.abort()

    def _count_taken(self) -> bool:
        """Whether the caller has time left, after the bytes that it has taken since the last call."""
        earned = (self._unsent - self.transport.get_write_buffer_size()) / MIN_BYTES_PER_SECOND
        waited = self.loop.time() - self._paused_at
        self._patience = max(0.0, min(self.stall_seconds, self._patience - waited + earned))
        return self._patience > 0


class _Flow(FlowControl):
    """Resumes reading only when no request waits. Until then, bytes that the caller sends ahead stay on its machine."""

    def __init__(self, connection: LimitedConnection, head: RequestHead) -> None:
        super().__init__(connection.transport)
        self._pipeline = connection.pipeline
        self._head = head

    def pause_reading(self) -> None:
        super().pause_reading()
        self._head.pause()

    def resume_reading(self) -> None:
        if self.read_paused and not self._pipeline:
            super().resume_reading()
            self._head.resume()


def connection_class(stall_seconds: float, max_connections: int) -> type[LimitedConnection]:
    """A subclass of `LimitedConnection` with these limits."""
    limits = {"stall_seconds": stall_seconds, "max_connections": max_connections, "idle": {}}
    return type("LimitedConnection", (LimitedConnection,), limits)


def has_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed an accepted connection; False where the kernel cannot say.

    A read would report the end only after all bytes that the other side sent before it.
    """
    if _TCP_INFO is None:
        return False
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] != _ESTABLISHED
    except OSError:
        return False
