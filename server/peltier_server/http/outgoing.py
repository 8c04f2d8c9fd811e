"""Sends large answers in pieces, and counts their bytes until the caller has taken them."""

from peltier_client.errors import QueueFull
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peltier_server.context import PIECE_BYTES, context_of
from peltier_server.errors import error_response
from peltier_server.fairness.shared_bound import Held, SharedBound


class OutgoingMiddleware:
    """Counts the bytes of each answer of more than 64 KiB against `bound` until the socket has them or the request
    ends.

    A prediction reserves the bytes of its answer through the request's context before anything is computed. Any other
    answer is replaced by a 503 if its bytes exceed the bound. Answers are sent in pieces of 64 KiB, each after most of
    the piece before it has left: the server cannot see how much of the bytes in the transport is still unsent.
    """

    def __init__(self, app: ASGIApp, bound: SharedBound) -> None:
        self._app = app
        self._bound = bound

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on. Answers to requests without a caller are small and not counted."""
        context = context_of(scope) if scope["type"] == "http" else None
        if context is None or context.known_caller is None:
            await self._app(scope, receive, send)
            return
        held = context.answer_bytes = Held(self._bound, context.tenant)
        answer = _Answer(held, self._bound.max_of_one, scope, send)
        try:
            await self._app(scope, receive, answer.send)
            if answer.refusal is not None:
                await error_response(answer.refusal, scope)(scope, receive, send)
        finally:
            held.end()


class _Answer:
    """One answer. If the length of a long answer is known, its head waits for the first bytes of the body, because
    the answer can still be replaced until then.
    """

    def __init__(self, held: Held, max_bytes: int, scope: Scope, send: Send) -> None:
        self.refusal: QueueFull | None = None
        self._held = held
        self._max_bytes = max_bytes
        self._send = send
        self._start: Message | None = None
        self._has_body = scope["method"] != "HEAD"

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and self._has_body and _is_long(message):
            self._start = message
        elif message["type"] == "http.response.body" and self.refusal is None:
            await self._send_body(message)
        elif self.refusal is None:
            await self._send(message)

    async def _send_body(self, message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._start is not None:
            start, self._start = self._start, None
            if not self._fits(body, whole=not more):
                return
            await self._send(start)
        elif not more and len(body) <= PIECE_BYTES:
            # The transport holds this many bytes in any case.
            self._held.shrink(0)
        if len(body) <= PIECE_BYTES:
            await self._send(message)
            return
        for begin in range(0, len(body), PIECE_BYTES):
            piece = body[begin : begin + PIECE_BYTES]
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        # The server sends this message when most of the last piece has left.
        await self._send({"type": "http.response.body", "body": b"", "more_body": more})

    def _fits(self, body: bytes, *, whole: bool) -> bool:
        # A page of a list is sent even if it is larger than the whole bound: it then takes all of the bound.
        num_bytes = min(len(body), self._max_bytes)
        if whole:
            self._held.shrink(num_bytes)
        try:
            self._held.grow(num_bytes)
        except QueueFull as error:
            self.refusal = error
        return self.refusal is None


def _is_long(start: Message) -> bool:
    length = next((value for name, value in start["headers"] if name == b"content-length"), b"0")
    return int(length) > PIECE_BYTES
