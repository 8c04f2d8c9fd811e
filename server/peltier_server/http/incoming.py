"""Receives the body of a request: limited in bytes and in time, and drained if the app does not read it."""

import asyncio
import contextlib
import time

from peltier_client.errors import PeltierError, TooLarge, TooSlow
from starlette.types import Message, Receive

from peltier_server.context import BodyLimit, RequestContext
from peltier_server.errors import ClientGone, RefusedBody

# Any network that carries artifacts of megabytes is faster. A body of a few kilobytes never reaches this limit.
MIN_BYTES_PER_SECOND = 16 * 1024
_MAX_LINGER_SECONDS = 2.0
# The key in the `state` of an ASGI scope that the connection sets once the body of the request is complete.
WHOLE = "body_is_whole"


class Incoming:
    """Wraps `receive` of one request.

    It raises `RefusedBody` for a body that stops for `stall_seconds` in total, or arrives more slowly than 16 KiB/s,
    unless the body `is_whole`, that is, arrived with its head. While the context has a limit of the body's bytes, it
    raises `RefusedBody` for a longer body, before the body is read if its length is known, and `ClientGone` if the
    caller disconnects before the end of the body.
    """

    def __init__(self, context: RequestContext, receive: Receive, stall_seconds: float, *, is_whole: bool) -> None:
        self._context = context
        self._receive = receive
        self._stall_seconds = stall_seconds
        # The seconds that the server still waits for the body. Bytes that arrive add to them.
        self._patience = stall_seconds
        self._is_paced = not is_whole and _has_body(context)
        self._ended = False
        self._num_bytes = 0

    @property
    def is_unread(self) -> bool:
        """Whether the caller may still send parts of the body."""
        return self._is_paced and not self._ended

    async def receive(self) -> Message:
        """The next message of the request."""
        if self._ended:
            return await self._receive()
        limit = self._context.body_limit
        if limit is not None and not self._num_bytes:
            _check(limit, _content_length(self._context))
        message = await (self._receive_in_time() if self._is_paced else self._receive())
        self._ended = not message.get("more_body", False)
        if limit is not None:
            if message["type"] == "http.disconnect":
                raise ClientGone
            self._num_bytes += len(message.get("body", b""))
            _check(limit, self._num_bytes)
        return message

    async def drain(self) -> None:
        """Reads the rest of the body for at most two seconds, so that an early answer reaches the caller, who may read
        it only after sending everything. A body may be endless.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MAX_LINGER_SECONDS):
                while not self._ended:
                    self._ended = not (await self._receive()).get("more_body", False)

    async def _receive_in_time(self) -> Message:
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._patience):
                message = await self._receive()
        except TimeoutError:
            sentence = (
                f"the request body stood still for {self._stall_seconds:g} s or came more slowly than "
                f"{MIN_BYTES_PER_SECOND} bytes a second"
            )
            raise RefusedBody(TooSlow(sentence)) from None
        earned = len(message.get("body", b"")) / MIN_BYTES_PER_SECOND
        self._patience = min(self._stall_seconds, self._patience - (time.monotonic() - started) + earned)
        return message


def _check(limit: BodyLimit, num_bytes: int) -> None:
    """Counts the first `num_bytes` of a body."""
    try:
        if num_bytes > limit.max_bytes:
            raise TooLarge("the request body is larger than this server accepts")
        if limit.held is not None:
            limit.held.grow(num_bytes)
    except PeltierError as error:
        raise RefusedBody(error) from None


def _has_body(context: RequestContext) -> bool:
    headers = context.headers
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _content_length(context: RequestContext) -> int:
    claimed = context.headers.get("content-length", "")
    return int(claimed) if claimed.isdecimal() and len(claimed) < 20 else 0
