"""The outermost layer of every request: its identity, its measure, and an answer whatever happens."""

import asyncio
import logging
import random
import re
import time

from peltier_client.errors import Draining, PeltierError, ServerError, TooLarge
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peltier_server import retry_hints
from peltier_server.auth.caller import Caller
from peltier_server.errors import ClientGone, error_response
from peltier_server.inference.resolved_task import ResolvedTask
from peltier_server.logs.access_log import log_access
from peltier_server.logs.request_fields import request_state
from peltier_server.metrics.matched_route import matched_route
from peltier_server.metrics.metrics import Metrics

logger = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_ID_BITS = 128


class RequestMiddleware:
    """Gives each request an `x-request-id` (the caller's own if it is plain text), measures and may log it."""

    def __init__(self, app: ASGIApp, metrics: Metrics, *, access_log: bool = False) -> None:
        self._app = app
        self._metrics = metrics
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on; what nobody has caught becomes a 500 without a traceback."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else _new_id()
        scope.setdefault("state", {})["request_id"] = request_id
        answer = _Answer(request_id, scope, receive, send)
        started = time.monotonic()
        # Log records that are made until the answer has ended say for which request.
        token = request_state.set(scope["state"])
        try:
            await self._answer(answer, scope, receive)
        finally:
            self._measure(scope, answer, time.monotonic() - started)
            request_state.reset(token)

    async def _answer(self, answer: "_Answer", scope: Scope, receive: Receive) -> None:
        try:
            await self._app(scope, receive, answer.send)
        except asyncio.CancelledError:
            # Requests are cancelled from outside only where a draining server's time is up.
            if answer.started:
                logger.warning("the server stopped in the middle of the answer to request %s", answer.request_id)
            await answer.fail(Draining("the server stopped before the answer was ready", retry_after=retry_hints.SOON))
        except Exception:
            request_id = scope["state"]["request_id"]
            logger.exception("request %s failed", request_id)
            await answer.fail(ServerError(f"the server failed; its log has the reason under x-request-id {request_id}"))

    def _measure(self, scope: Scope, answer: "_Answer", seconds: float) -> None:
        caller: Caller | None = scope["state"].get("caller")
        tenant = None if caller is None else caller.tenant
        self._metrics.observe_request(tenant, answer.status, seconds)
        self._metrics.observe_route(matched_route(scope), seconds)
        target: ResolvedTask | None = scope["state"].get("target")
        if target is not None:
            self._metrics.versions.observe(target.entry.labels, answer.status, seconds)
        if self._access_log:
            log_access(scope, answer.status, answer.num_bytes, seconds)


def _new_id() -> str:
    # It is no secret. Asking the kernel for randomness would hand the interpreter to another thread meanwhile.
    return f"{random.getrandbits(_ID_BITS):032x}"


class _Answer:
    """What is being sent for one request."""

    def __init__(self, request_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        self.status = ClientGone.status
        self.num_bytes = 0
        self.request_id = request_id
        self._scope = scope
        self._receive = receive
        self._send = send
        self._replaced = False
        self.started = False

    async def send(self, message: Message) -> None:
        if self._replaced:
            return
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self.request_id
            if self.status == TooLarge.status and headers.get("content-type", "").startswith("text/plain"):
                await self._replace_refused_body()
                return
        else:
            self.num_bytes += len(message.get("body", b""))
        await self._send(message)

    async def fail(self, error: PeltierError) -> None:
        """Answers with `error`. An answer that has begun stays incomplete: the server then closes the connection, so
        that nobody takes it for whole."""
        if not self.started:
            await self._answer(error)

    async def _replace_refused_body(self) -> None:
        # The framework's own limit of bodies answers in plain text, in the place where no handler can shape it.
        self._replaced = True
        await self._answer(TooLarge("the request body is larger than this server accepts"))

    async def _answer(self, error: PeltierError) -> None:
        response = error_response(error, self._scope, {"x-request-id": self.request_id})
        self.status = response.status_code
        self.num_bytes = len(response.body)
        await response(self._scope, self._receive, self._send)
