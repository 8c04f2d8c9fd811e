"""Limits how slowly a body may arrive, and drains a body that the app does not read."""

import asyncio
import contextlib
import time

from peltier_client.errors import TooSlow
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peltier_server.errors import RefusedBody

# Any network that carries artifacts of megabytes is faster. A body of a few kilobytes never reaches this limit.
MIN_BYTES_PER_SECOND = 16 * 1024
_MAX_LINGER_SECONDS = 2.0
# The key in the `state` of an ASGI scope that the connection sets once the body of the request is complete.
WHOLE = "body_is_whole"


class SlowBodyMiddleware:
    """Answers 408 to a body that stops for `stall_seconds` in total, or arrives more slowly than 16 KiB/s.

    If the caller still sends after the answer, the server reads for two more seconds, so that the answer reaches the
    caller, and then closes the connection. Otherwise it could read an endless body for ever.
    """

    def __init__(self, app: ASGIApp, stall_seconds: float) -> None:
        self._app = app
        self._stall_seconds = stall_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on. A request without a body, or whose body arrived with its head, is not changed."""
        if scope["type"] != "http" or scope.get("state", {}).get(WHOLE) or not _has_body(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        body = _Body(receive, send, self._stall_seconds)
        await self._app(scope, body.receive, body.send)


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


class _Body:
    """The body of one request. `_left` is the number of seconds that the server still waits for it; bytes that
    arrive add to it.
    """

    def __init__(self, receive: Receive, send: Send, stall_seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._stall_seconds = self._left = stall_seconds
        self._ended = False

    async def receive(self) -> Message:
        if self._ended:
            return await self._receive()
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._left):
                message = await self._receive()
        except TimeoutError:
            raise RefusedBody(TooSlow(self._sentence)) from None
        earned = len(message.get("body", b"")) / MIN_BYTES_PER_SECOND
        self._left = min(self._stall_seconds, self._left - (time.monotonic() - started) + earned)
        self._ended = not message.get("more_body", False)
        return message

    @property
    def _sentence(self) -> str:
        return (
            f"the request body stood still for {self._stall_seconds:g} s or came more slowly than "
            f"{MIN_BYTES_PER_SECOND} bytes a second"
        )

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and not self._ended:
            MutableHeaders(scope=message)["connection"] = "close"
        if message["type"] == "http.response.body" and not self._ended and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._linger()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    async def _linger(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MAX_LINGER_SECONDS):
                while not self._ended:
                    self._ended = not (await self._receive()).get("more_body", False)
