"""One TCP connection: nobody may hold it without speaking HTTP, or without listening."""

from asyncio import TimerHandle

from httptools import HttpParserError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from peltier_server.pace import MIN_BYTES_PER_SECOND

# A request's line and headers. Larger ones would be kept whole: the parser has no limit of its own.
MAX_HEAD_BYTES = 64 * 1024
_MAX_PIPELINED = 16


class Connection(HttpToolsProtocol):
    """uvicorn's connection, closed when a request's head takes longer than `stall_seconds` or more than 64 KiB, and
    when the caller takes less than 16 KiB/s of an answer over `stall_seconds`. A subclass sets the seconds."""

    stall_seconds: float

    def connection_made(self, transport) -> None:  # type: ignore[no-untyped-def]
        self._head: TimerHandle | None = None
        self._write: TimerHandle | None = None
        self._head_bytes = 0
        super().connection_made(transport)
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

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        # Closing waits until the caller has taken what is still to be sent.
        self.loop.call_later(self.stall_seconds, self.transport.abort)

    def _watch_writing(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        self._write = self.loop.call_later(self.stall_seconds, self._judge_writing, unsent)

    def _judge_writing(self, unsent_before: int) -> None:
        taken = unsent_before - self.transport.get_write_buffer_size()
        if taken < MIN_BYTES_PER_SECOND * self.stall_seconds:
            self.transport.abort()
        else:
            self._watch_writing()

    def _begin_head(self) -> None:
        self._head_bytes = 0
        if self._head is None:
            self._head = self.loop.call_later(self.stall_seconds, self.transport.abort)

    def _end_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None


def connection_class(stall_seconds: float) -> type[Connection]:
    """A `Connection` that waits this long."""
    return type("Connection", (Connection,), {"stall_seconds": stall_seconds})
