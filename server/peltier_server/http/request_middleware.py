"""Handles one request from its head to the end of its answer: context, measurements, and an answer to any failure."""

import asyncio
import logging
import random
import re
import time
from collections.abc import Mapping

from peltier_client.errors import Draining, PeltierError, QueueFull, ServerError
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peltier_server import retry_hints
from peltier_server.context import TRACE, RequestContext, attach_context, current_context, headers_of
from peltier_server.errors import ClientGone, error_response
from peltier_server.http.auth_middleware import OPEN_PATHS
from peltier_server.http.error_handlers import ANSWERED, answer_error
from peltier_server.http.lifecycle import Lifecycle
from peltier_server.logs.access_log import log_access
from peltier_server.metrics.labels import matched_route
from peltier_server.metrics.metrics import Metrics

logger = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_ID_BITS = 128


class RequestMiddleware:
    """Gives each request a context, measures the request and, if enabled, writes it to the access log.

    The context has the `x-request-id` of the caller if that is plain text, and a random one otherwise. A request that
    arrived before the server began to drain is answered even if its body is not complete yet. While the server is
    leaving, every answer closes its connection, so that the caller opens the next one to another replica. On a surplus
    connection (see `Connection`) the middleware answers 503 and closes the connection, except to the front page and the
    probes: a server with too many callers is still alive.
    """

    def __init__(
        self, app: ASGIApp, lifecycle: Lifecycle, metrics: Metrics, max_connections: int, *, access_log: bool = False
    ) -> None:
        self._app = app
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._max_connections = max_connections
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on. Answers an uncaught exception with a 500 without a traceback."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, admitted = time.monotonic(), self._lifecycle.begin_request()
        headers = headers_of(scope)
        state = scope.setdefault("state", {})
        context = RequestContext(_request_id(headers), headers, admitted, trace=state.get(TRACE))
        is_surplus = state.get("surplus", False)
        attach_context(scope, context)
        answer = _Answer(context, self._lifecycle, send, is_last=is_surplus)
        # Log records name this request until its answer has ended.
        token = current_context.set(context)
        try:
            await self._answer(answer, scope, receive, is_surplus=is_surplus)
        finally:
            self._lifecycle.end_request(admitted=admitted)
            self._measure(scope, answer, time.monotonic() - started)
            current_context.reset(token)

    async def _answer(self, answer: "_Answer", scope: Scope, receive: Receive, *, is_surplus: bool) -> None:
        request_id = answer.context.request_id
        app = self._refuse if is_surplus and scope["path"] not in OPEN_PATHS else self._app
        error: PeltierError
        try:
            await app(scope, receive, answer.send)
        except asyncio.CancelledError:
            # Only the server cancels a request from outside: when the time for draining is over.
            if answer.started:
                logger.warning("the server stopped in the middle of the answer to request %s", request_id)
            error = Draining("the server stopped before the answer was ready", retry_after=retry_hints.SOON)
        except ANSWERED as raised:
            # Of the router, for an unknown address or method or a missing scope. Endpoints answer their own errors.
            await (await answer_error(Request(scope), raised))(scope, receive, answer.send)
            return
        except Exception:
            logger.exception("request %s failed", request_id)
            error = ServerError(f"the server failed; its log has the reason under x-request-id {request_id}")
        else:
            return
        # An answer that has begun stays incomplete. The server then closes the connection, so that the caller can see
        # that it is incomplete.
        if not answer.started:
            await error_response(error, scope)(scope, receive, answer.send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        sentence = f"{self._max_connections} connections are open, and this server holds no more"
        await error_response(QueueFull(sentence, retry_after=retry_hints.SOON), scope)(scope, receive, send)

    def _measure(self, scope: Scope, answer: "_Answer", seconds: float) -> None:
        context = answer.context
        tenant = None if context.known_caller is None else context.tenant
        self._metrics.observe_request(tenant, answer.status, seconds)
        self._metrics.observe_route(matched_route(scope), seconds)
        if context.version is not None:
            self._metrics.versions.observe(context.version, answer.status, seconds)
        if self._access_log:
            log_access(scope, answer.status, answer.num_bytes, seconds)


def _request_id(headers: Mapping[str, str]) -> str:
    given = headers.get("x-request-id")
    # A request id is not secret. A read from the kernel's random generator would hand the interpreter to another
    # thread.
    return given if given and _REQUEST_ID.fullmatch(given) else f"{random.getrandbits(_ID_BITS):032x}"


class _Answer:
    """Sends the answer to one request and records its status and size. With `is_last` the connection is closed
    afterwards.
    """

    def __init__(self, context: RequestContext, lifecycle: Lifecycle, send: Send, *, is_last: bool) -> None:
        self.context = context
        self.status = ClientGone.status
        self.num_bytes = 0
        self.started = False
        self._lifecycle = lifecycle
        self._send = send
        self._is_last = is_last

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            headers = [*message["headers"], (b"x-request-id", self.context.request_id.encode())]
            if self._is_last or self._lifecycle.leaving:
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        else:
            self.num_bytes += len(message.get("body", b""))
        await self._send(message)
