"""Sends the answer to a request: adds headers, and sends large answers in pieces whose bytes are counted until the
caller has taken them."""

from peltier_client.errors import QueueFull
from peltier_client.protocol.session import TENANT_HEADER
from starlette.types import Message, Receive, Scope, Send

from peltier_server.context import PIECE_BYTES, RequestContext
from peltier_server.errors import ClientGone, error_response
from peltier_server.fairness.shared_bound import Held
from peltier_server.http.incoming import Incoming
from peltier_server.http.lifecycle import Lifecycle

_TENANT_HEADER = TENANT_HEADER.encode()


class Outgoing:
    """Wraps `send` of one request, and records the status and size of the answer.

    It adds the request id, the tenant of an authenticated caller, the headers of quotas, and that no cache may keep the
    answer unless the app says what caches may do. The answer closes the connection if it `is_last`, if the server is
    leaving, or if the caller may still send parts of the body.

    If the context counts the bytes of answers, an answer of more than 64 KiB counts until the socket has it or the
    request ends. A prediction reserves the bytes of its answer through the context before anything is computed. Any
    other answer is replaced by a 503 if its bytes exceed the bound. Answers are sent in pieces of 64 KiB, each after
    most of the piece before it has left: the server cannot see how much of the bytes in the transport is still unsent.

    With `only_head` the answer ends after its head; what else the app sends is dropped.
    """

    def __init__(
        self, context: RequestContext, lifecycle: Lifecycle, incoming: Incoming, send: Send, *, is_last: bool = False
    ) -> None:
        self.status = ClientGone.status
        self.num_bytes = 0
        self.started = False
        self._context = context
        self._lifecycle = lifecycle
        self._incoming = incoming
        self._send = send
        self._is_last = is_last
        self.only_head = False
        # The head of a long answer waits for the first bytes of the body, because the answer can still be replaced
        # until then.
        self._head: Message | None = None
        self._refusal: QueueFull | None = None

    async def send(self, message: Message) -> None:
        """Sends a message of the answer."""
        if self._refusal is not None:
            return
        if self.only_head:
            if message["type"] == "http.response.start":
                await self._send_head(message)
                await self._send_piece({"type": "http.response.body", "body": b"", "more_body": False})
            return
        if message["type"] == "http.response.body":
            await self._send_body(message)
        elif message["type"] != "http.response.start":
            await self._send(message)
        elif self._context.answer_bytes is not None and _is_long(message):
            self._head = message
        else:
            self._head = None
            await self._send_head(message)

    async def end(self, scope: Scope, receive: Receive) -> None:
        """Called when the app has ended. Sends a 503 if the answer found no room."""
        if self._refusal is not None:
            error, self._refusal = self._refusal, None
            await error_response(error, scope)(scope, receive, self.send)

    async def _send_head(self, message: Message) -> None:
        headers = [*message["headers"]]
        # Asked once, so that an answer to a failure of the quotas does not ask them again.
        of_quotas, self._context.quota_headers = self._context.quota_headers, None
        if of_quotas is not None:
            given = await of_quotas(message["status"])
            headers += [(name.encode(), value.encode()) for name, value in given.items()]
        if not any(name == b"cache-control" for name, _ in headers):
            # A shared cache would give it to other callers, or after the state has changed.
            headers.append((b"cache-control", b"no-store"))
        headers.append((b"x-request-id", self._context.request_id.encode()))
        if self._context.known_caller is not None:
            headers.append((_TENANT_HEADER, self._context.tenant.encode()))
        if self._is_last or self._lifecycle.leaving or self._incoming.is_unread:
            headers.append((b"connection", b"close"))
        self.started, self.status = True, message["status"]
        await self._send({**message, "headers": headers})

    async def _send_body(self, message: Message) -> None:
        body, more, held = message.get("body", b""), message.get("more_body", False), self._context.answer_bytes
        if self._head is not None and held is not None:
            head, self._head = self._head, None
            if not self._fits(held, body, whole=not more):
                return
            await self._send_head(head)
        elif held is not None and not more and len(body) <= PIECE_BYTES:
            # The transport holds this many bytes in any case.
            held.shrink(0)
        if held is None or len(body) <= PIECE_BYTES:
            await self._send_piece(message)
            return
        for begin in range(0, len(body), PIECE_BYTES):
            piece = body[begin : begin + PIECE_BYTES]
            await self._send_piece({"type": "http.response.body", "body": piece, "more_body": True})
        # The server sends this message when most of the last piece has left.
        await self._send_piece({"type": "http.response.body", "body": b"", "more_body": more})

    def _fits(self, held: Held, body: bytes, *, whole: bool) -> bool:
        # A page of a list is sent even if it is larger than the whole bound: it then takes all of the bound.
        num_bytes = min(len(body), held.max_amount)
        if whole:
            held.shrink(num_bytes)
        try:
            held.grow(num_bytes)
        except QueueFull as error:
            self._refusal = error
        return self._refusal is None

    async def _send_piece(self, message: Message) -> None:
        self.num_bytes += len(message.get("body", b""))
        if self._incoming.is_unread and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._incoming.drain()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)


def _is_long(head: Message) -> bool:
    length = next((value for name, value in head["headers"] if name == b"content-length"), b"0")
    return int(length) > PIECE_BYTES
