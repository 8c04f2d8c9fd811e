"""One TCP connection: nobody may hold it without speaking HTTP, or without listening."""

from asyncio import TimerHandle

from httptools import HttpParserError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from peltier_server.pace import MIN_BYTES_PER_SECOND

# A request's line and headers. Larger ones would be kept whole: the parser has no limit of its own.
MAX_HEAD_BYTES = 64 * 1024
_MAX_PIPELINED = 16
# Connections that are told why they are refused, or asked whether the server lives.
_MAX_SURPLUS = 64
# For the request of one of these.
_SURPLUS_SECONDS = 2.0


class Connection(HttpToolsProtocol):
    """uvicorn's connection, closed when a request's head takes longer than `stall_seconds` or more than 64 KiB, and
    when the caller keeps an answer waiting for `stall_seconds` in all, where bytes that it takes earn time at
    16 KiB/s. One beyond `max_connections` is surplus: its requests say so in their state, and it has two seconds for
    the head of one; far more are closed unheard. A subclass sets seconds and number."""

    stall_seconds: float
    max_connections: int

    def connection_made(self, transport) -> None:  # type: ignore[no-untyped-def]
        self._head: TimerHandle | None = None
        self._write: TimerHandle | None = None
        self._head_seconds = self.stall_seconds
        # How long the caller may still keep the answer waiting; a pause is for one piece of it.
        self._patience = self.stall_seconds
        self._paused_at, self._unsent = 0.0, 0
        self._head_bytes = 0
        super().connection_made(transport)
        num_surplus = len(self.connections) - self.max_connections
        if num_surplus > _MAX_SURPLUS:
            transport.abort()
            return
        if num_surplus > 0:
            self._head_seconds = min(self._head_seconds, _SURPLUS_SECONDS)
            self.app_state = {**self.app_state, "surplus": True}
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head is not None:
            # Nothing of an unfinished header reaches `on_header`.
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES or len(self.pipeline) > _MAX_PIPELINED:
            raise HttpParserError("the head of the request is too large, or too many requests wait")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

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

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        # Closing waits until the caller has taken what is still to be sent.
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
        """Whether the caller has taken enough since the last look."""
        earned = (self._unsent - self.transport.get_write_buffer_size()) / MIN_BYTES_PER_SECOND
        waited = self.loop.time() - self._paused_at
        self._patience = max(0.0, min(self.stall_seconds, self._patience - waited + earned))
        return self._patience > 0

    def _begin_head(self) -> None:
        self._head_bytes = 0
        if self._head is None:
            self._head = self.loop.call_later(self._head_seconds, self.transport.abort)

    def _end_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None


def connection_class(stall_seconds: float, max_connections: int) -> type[Connection]:
    """A `Connection` that waits this long, of which there are so many."""
    limits = {"stall_seconds": stall_seconds, "max_connections": max_connections}
    return type("Connection", (Connection,), limits)
