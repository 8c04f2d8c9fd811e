"""Traces each request. The app has it only if the server exports traces."""

import time

from opentelemetry.trace import Tracer
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peltier_server.context import TRACE, context_of, headers_of
from peltier_server.errors import ClientGone
from peltier_server.http.auth_middleware import OPEN_PATHS
from peltier_server.metrics.labels import matched_route
from peltier_server.tracing.request_trace import RequestTrace

# These are asked every few seconds.
_UNTRACED = frozenset({*OPEN_PATHS, "/metrics", "/v1/live"})


class TraceMiddleware:
    """A span for each request, from its head to the end of its answer, with its tenant and adapter version. It is
    outside of the other middleware, so it sees the status that the caller reads."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on."""
        if scope["type"] != "http" or scope["path"] in _UNTRACED:
            await self._app(scope, receive, send)
            return
        trace = RequestTrace(self._tracer, headers_of(scope), time.monotonic())
        scope.setdefault("state", {})[TRACE] = trace
        # Of a caller who disconnected before the answer.
        status = ClientGone.status

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        finally:
            _end(trace, scope, status)


def _end(trace: RequestTrace, scope: Scope, status: int) -> None:
    method, route = matched_route(scope)
    context = context_of(scope)
    attributes = {"http.request.method": method, "http.route": route, "peltier.request_id": context.request_id}
    if context.known_caller is not None:
        attributes["peltier.tenant"] = context.tenant
    if context.version is not None:
        owner, adapter, version = context.version
        attributes |= {"peltier.owner": owner, "peltier.adapter": adapter, "peltier.version": version}
    trace.end(f"{method} {route}", status, attributes)
