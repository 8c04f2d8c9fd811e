"""Turns the exceptions that routes raise into answers."""

import logging
from http import HTTPStatus

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from peltier_adapters.errors import AdapterError
from peltier_backbone.errors import BackboneError
from peltier_client.errors import MethodNotAllowed, PeltierError, ServerError, Unavailable
from starlette.exceptions import HTTPException
from starlette.routing import Match

from peltier_server.context import context_of
from peltier_server.errors import (
    STORE_FULL,
    STORE_GONE,
    ClientGone,
    RefusedBody,
    error_response,
    to_wire,
)

logger = logging.getLogger(__name__)

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
# The exceptions that a route may raise; any other exception is a fault of the server.
ANSWERED = (PeltierError, AdapterError, BackboneError, RequestValidationError, HTTPException, ClientGone)


async def answer_error(request: Request, error: Exception) -> Response:
    """The answer to a request whose route raised one of `ANSWERED`."""
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
