"""Routes that are closed: each names the scope that it needs, and asks for it before a byte of the body is read."""

from collections.abc import Iterable
from typing import Any, cast

from fastapi import APIRouter, FastAPI, Security, params
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from peltier_client.errors import Forbidden, QuotaExceeded
from peltier_client.protocol import Scope
from pydantic import BaseModel
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from peltier_server.auth.caller import Caller
from peltier_server.auth.middleware import OPEN_PATHS
from peltier_server.errors import error_response
from peltier_server.http.bodies import Handler, bounded, unique
from peltier_server.quotas.enforcer import QuotaEnforcer

# Routes of these scopes run and watch the server; a tenant's quotas never shut them.
_UNCOUNTED: frozenset[Scope] = frozenset({"admin", "metrics"})
# The guard has checked the key by then; this is how OpenAPI shows that there is one.
_BEARER = HTTPBearer(auto_error=False, description="An API key (plt_…) or a token, where the server asks for one.")


def require_scope(scope: Scope) -> Any:
    """For the `dependencies` of a closed route or its router: the key must have `scope`."""
    return Security(_BEARER, scopes=[scope])


def scoped_router(scope: Scope, tag: str, prefix: str = "") -> APIRouter:
    """A router whose routes need `scope`, under one tag of the OpenAPI."""
    return APIRouter(prefix=prefix, tags=[tag], route_class=ScopedRoute, dependencies=[require_scope(scope)])


class ScopedRoute(APIRoute):
    """A route that answers only callers with the scopes that it needs, and nobody where it names none.

    Whoever uses adapters is also held to the tenant's quotas. Who may set quotas is not, or could lock themselves out.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.scopes = frozenset(_scopes(self.dependencies))

    def get_route_handler(self) -> Handler:
        """The framework's, over a body that is bounded; where it changes something, it must be unambiguous."""
        handle, field = super().get_route_handler(), self.body_field
        if field is None or isinstance(field.field_info, params.Form):
            # An upload's form has bounds of its own.
            return handle
        # The framework asks before `scopes` is set.
        hook = None if "predict" in _scopes(self.dependencies) else unique
        annotation: Any = field.field_info.annotation
        is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
        return bounded(handle, annotation if is_model else None, hook)

    async def handle(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Lets the request in, or answers in the route's place."""
        if scope["method"] in (self.methods or ()):
            caller: Caller = scope["state"]["caller"]
            self._check(caller)
            if self.scopes.isdisjoint(_UNCOUNTED):
                await within_quotas(super().handle, scope, receive, send)
                return
        await super().handle(scope, receive, send)

    def _check(self, caller: Caller) -> None:
        if not self.scopes:
            raise Forbidden("this route names no scope, so no key opens it")
        for needed in self.scopes:
            caller.require(needed)


async def within_quotas(app: ASGIApp, scope: Connection, receive: Receive, send: Send) -> None:
    """Passes a request on to `app` as far as its tenant's quotas allow, which count it once however often it comes
    here."""
    state = scope["state"]
    if "quota_slot" in state:
        await app(scope, receive, send)
        return
    enforcer: QuotaEnforcer = scope["app"].state.enforcer
    slot = state["quota_slot"] = enforcer.slot(state["caller"].tenant)
    send = slot.with_ratelimit_headers(send)
    try:
        async with slot:
            await app(scope, receive, send)
    except QuotaExceeded as error:
        # On entering; what the route itself raises is answered within it.
        await error_response(error, scope)(scope, receive, send)


def refuse_open_routes(app: FastAPI, keyed_paths: frozenset[str]) -> None:
    """Raises `RuntimeError` unless every route of the app names a scope, is open to strangers, or is one of
    `keyed_paths`, which any key opens."""
    pages = keyed_paths | {app.openapi_url}
    for route in _routes(app.routes):
        path = getattr(route, "path", "")
        is_closed = isinstance(route, ScopedRoute) and bool(route.scopes)
        if not (is_closed or path in OPEN_PATHS or path in pages):
            raise RuntimeError(f"route {path or route} names no scope; give it dependencies=[needs(…)]")


def _scopes(dependencies: Iterable[params.Depends]) -> Iterable[Scope]:
    for dependency in dependencies:
        if isinstance(dependency, params.Security):
            yield from cast("Iterable[Scope]", dependency.scopes or ())


def _routes(routes: Iterable[BaseRoute]) -> Iterable[BaseRoute]:
    for route in routes:
        # A router that was included, and whose routes the framework does not copy.
        included = getattr(route, "original_router", None)
        if included is None:
            yield route
        else:
            yield from _routes(included.routes)
