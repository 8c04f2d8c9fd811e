"""Handles one request from its head to the end of its answer: context, caller, measurements, and an answer to any
failure."""

import asyncio
import logging
import random
import re
import time
from collections.abc import Mapping
from http import HTTPStatus

from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from opentelemetry.trace import Tracer
from peltier_adapters.errors import AdapterError
from peltier_backbone.errors import BackboneError
from peltier_client.errors import Draining, MethodNotAllowed, PeltierError, QueueFull, ServerError, Unavailable
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from peltier_server import retry_hints
from peltier_server.context import RequestContext, attach_context, context_of, current_context, headers_of
from peltier_server.errors import STORE_FULL, STORE_GONE, ClientGone, RefusedBody, error_response, to_wire
from peltier_server.fairness.shared_bound import Held
from peltier_server.http.application import AppState
from peltier_server.http.incoming import WHOLE, Incoming
from peltier_server.http.outgoing import Outgoing
from peltier_server.logs.access_log import log_access
from peltier_server.metrics.series import matched_route
from peltier_server.settings import CoreSettings
from peltier_server.tracing import RequestTrace

logger = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/", "/health", "/ready", "/ping", "/v2/health/live", "/v2/health/ready"})
# These are asked every few seconds.
_UNTRACED = OPEN_PATHS | {"/metrics"}
# The exceptions that a route may raise; any other exception is a fault of the server.
_ANSWERED = (PeltierError, AdapterError, BackboneError, RequestValidationError, HTTPException, ClientGone)
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_ID_BITS = 128
# The key in the `state` of an ASGI scope that has the caller of a request in a batch, whom the server knows.
STORED_CALLER = "stored_caller"


def _end_span(trace: RequestTrace, scope: Scope, context: RequestContext, status: int) -> None:
    """Ends the span of a request that was answered with `status`."""
    method, route = matched_route(scope)
    attributes = {"http.request.method": method, "http.route": route, "peltier.request_id": context.request_id}
    if context.known_caller is not None:
        attributes["peltier.tenant"] = context.tenant
    if context.version is not None:
        owner, adapter, version = context.version
        attributes |= {"peltier.owner": owner, "peltier.adapter": adapter, "peltier.version": version}
    trace.end(f"{method} {route}", status, attributes)


def is_open(path: str, page: str | None = None) -> bool:
    """Whether this path, or template of paths, needs no caller: the front page, the probes, and the `page` for browsers
    with its files. What it answers is the same for everybody, but `/health` has one more field for callers with a
    key."""
    return path in OPEN_PATHS or (page is not None and (path == page or path.startswith(f"{page}/")))


class RequestMiddleware:
    """The only middleware. It gives each request a context with its caller, measures the request and, if enabled,
    traces it and writes it to the access log.

    The context has the `x-request-id` of the caller if that is plain text, and a random one otherwise. A request that
    arrived before the server began to drain is answered even if its body is not complete yet. While the server is
    leaving, every answer closes its connection, so that the caller opens the next one to another replica. On a surplus
    connection (see `LimitedConnection`) the middleware answers 503 and closes the connection, except to the front page
    and the probes: a server with too many callers is still alive.

    It authenticates the caller before the router sees the request, because the framework reads and parses a body before
    it runs dependencies. An unauthenticated caller must not make the server receive an upload, or learn which addresses
    exist.

    HEAD is answered as GET without the body.
    """

    def __init__(self, app: ASGIApp, state: AppState, settings: CoreSettings, tracer: Tracer | None) -> None:
        self._app = app
        self._state = state
        self._settings = settings
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on. Answers an uncaught exception with a 500 without a traceback."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, lifecycle, method = time.monotonic(), self._state.lifecycle, scope["method"]
        if method == "HEAD":
            # A copy, because the HTTP server still reads its own.
            scope = {**scope, "method": "GET"}
        context = self._begin(scope, started, admitted=lifecycle.begin_request())
        state = scope["state"]
        incoming = Incoming(context, receive, self._settings.limits.stall_seconds, is_whole=state.get(WHOLE, False))
        max_connections = state.get("surplus")
        outgoing = Outgoing(context, lifecycle, incoming, send, is_last=max_connections is not None)
        outgoing.only_head = method == "HEAD"
        # Log records name this request until its answer has ended.
        token = current_context.set(context)
        try:
            await self._answer(scope, context, incoming, outgoing, max_connections)
        finally:
            if context.answer_bytes is not None:
                context.answer_bytes.end()
            if context.leave_slot is not None:
                context.leave_slot()
            lifecycle.end_request(admitted=context.admitted)
            scope["method"] = method
            self._measure(scope, context, outgoing, time.monotonic() - started)
            current_context.reset(token)

    def _begin(self, scope: Scope, started: float, *, admitted: bool) -> RequestContext:
        headers = headers_of(scope)
        trace = None
        if self._tracer is not None and scope["path"] not in _UNTRACED:
            trace = RequestTrace(self._tracer, headers, started)
        context = RequestContext(_request_id(headers), headers, admitted, trace=trace)
        scope.setdefault("state", {})
        attach_context(scope, context)
        return context

    async def _answer(
        self, scope: Scope, context: RequestContext, incoming: Incoming, outgoing: Outgoing, max_connections: int | None
    ) -> None:
        error: PeltierError
        try:
            try:
                await self._call(scope, context, incoming, outgoing, max_connections)
            except _ANSWERED as raised:
                if outgoing.started:
                    raise
                await _answer_error(Request(scope), raised)(scope, incoming.receive, outgoing.send)
            await outgoing.end(scope, incoming.receive)
        except asyncio.CancelledError:
            # Only the server cancels a request from outside: when the time for draining is over.
            if outgoing.started:
                logger.warning("the server stopped in the middle of the answer to request %s", context.request_id)
            error = Draining("the server stopped before the answer was ready", retry_after=retry_hints.SOON)
        except Exception:
            logger.exception("request %s failed", context.request_id)
            error = ServerError(f"the server failed; its log has the reason under x-request-id {context.request_id}")
        else:
            return
        # An answer that has begun stays incomplete. The server then closes the connection, so that the caller can see
        # that it is incomplete.
        if not outgoing.started:
            context.quota_headers = None
            await error_response(error, scope)(scope, incoming.receive, outgoing.send)

    async def _call(
        self, scope: Scope, context: RequestContext, incoming: Incoming, outgoing: Outgoing, max_connections: int | None
    ) -> None:
        """Authenticates the caller and passes the request on. Raises `QueueFull` for a surplus connection."""
        if max_connections is not None and scope["path"] not in OPEN_PATHS:
            sentence = f"{max_connections} connections are open, and this server holds no more"
            raise QueueFull(sentence, retry_after=retry_hints.SOON)
        if not is_open(scope["path"], self._state.page):
            stored = scope["state"].get(STORED_CALLER)
            context.known_caller = stored or await self._state.authenticator.caller(context.headers)
            context.is_background = stored is not None
            context.answer_bytes = Held(self._state.preparation.answer_bytes, context.tenant)
        await self._app(scope, incoming.receive, outgoing.send)

    def _measure(self, scope: Scope, context: RequestContext, outgoing: Outgoing, seconds: float) -> None:
        metrics, status = self._state.metrics, outgoing.status
        tenant = None if context.known_caller is None else context.tenant
        metrics.observe_request(tenant, status, seconds)
        metrics.observe_route(matched_route(scope), seconds)
        if context.version is not None:
            metrics.versions.observe(context.version, status, seconds)
        if self._settings.logs.access_log:
            log_access(scope, status, outgoing.num_bytes, seconds)
        if context.trace is not None:
            _end_span(context.trace, scope, context, status)


def _answer_error(request: Request, error: Exception) -> Response:
    """The answer to a request whose route raised one of `_ANSWERED`."""
    if isinstance(error, ClientGone):
        return Response(status_code=ClientGone.status)
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return _method_not_allowed(request)
    wire = to_wire(error)
    _log(context_of(request.scope).request_id, error, wire)
    return error_response(wire, request.scope)


def _log(request_id: str, error: Exception, wire: PeltierError) -> None:
    if isinstance(error, (PeltierError, RefusedBody, *STORE_GONE)):
        return
    if isinstance(error, STORE_FULL) or (isinstance(wire, Unavailable) and isinstance(error, AdapterError)):
        # Other requests fail in this way too until the store is back, and a traceback adds nothing to the message.
        logger.warning("request %s: %s", request_id, error)
    elif isinstance(wire, ServerError | Unavailable):
        logger.error("request %s failed", request_id, exc_info=error)


def _method_not_allowed(request: Request) -> Response:
    # The framework's own Allow header names only the methods of the first route at the address; there may be several
    # routes.
    scopes = {method: {**request.scope, "method": method} for method in _METHODS}
    routes = request.app.routes
    allowed = ", ".join(m for m, scope in scopes.items() if any(r.matches(scope)[0] is Match.FULL for r in routes))
    error = MethodNotAllowed(f"this address accepts {allowed}, not {request.method}")
    return error_response(error, request.scope, {"allow": allowed.replace("GET", "GET, HEAD")})


def _request_id(headers: Mapping[str, str]) -> str:
    given = headers.get("x-request-id")
    # A request id is not secret. A read from the kernel's random generator would hand the interpreter to another
    # thread.
    return given if given and _REQUEST_ID.fullmatch(given) else f"{random.getrandbits(_ID_BITS):032x}"
