"""The span of a request, from its head to the end of its answer, with its tenant and adapter version."""

from collections.abc import Mapping

from opentelemetry.trace import Tracer
from starlette.types import Scope

from peltier_server.context import RequestContext
from peltier_server.metrics.labels import matched_route
from peltier_server.tracing.request_trace import RequestTrace

# These are asked every few seconds, like the paths that need no caller.
_UNTRACED = frozenset({"/metrics", "/v1/live"})


def begin_span(tracer: Tracer, scope: Scope, headers: Mapping[str, str], started: float) -> RequestTrace | None:
    """The spans of a request that began at `started`, in seconds of `time.monotonic`; None if it is not traced."""
    return None if scope["path"] in _UNTRACED else RequestTrace(tracer, headers, started)


def end_span(trace: RequestTrace, scope: Scope, context: RequestContext, status: int) -> None:
    """Ends the span of a request that was answered with `status`."""
    method, route = matched_route(scope)
    attributes = {"http.request.method": method, "http.route": route, "peltier.request_id": context.request_id}
    if context.known_caller is not None:
        attributes["peltier.tenant"] = context.tenant
    if context.version is not None:
        owner, adapter, version = context.version
        attributes |= {"peltier.owner": owner, "peltier.adapter": adapter, "peltier.version": version}
    trace.end(f"{method} {route}", status, attributes)
