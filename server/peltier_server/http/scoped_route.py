"""Routes that are closed: each names the scope that it needs, and asks for it before a byte of the body is read."""

import inspect
from collections.abc import Iterable
from functools import cached_property
from typing import Any, cast

from fastapi import APIRouter, FastAPI, Request, Response, Security, params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from peltier_client.errors import Forbidden, QuotaExceeded
from peltier_client.protocol import Scope
from pydantic import BaseModel
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from peltier_server.auth.caller import Caller
from peltier_server.context import context_of
from peltier_server.errors import error_response
from peltier_server.http.auth_middleware import OPEN_PATHS
from peltier_server.http.bodies import Handler, bounded, unique
from peltier_server.http.error_handlers import ANSWERED, answer_error
from peltier_server.quotas.enforcer import QuotaEnforcer

JSON = "application/json"

# Routes of these scopes run and watch the server; a tenant's quotas never shut them.
_UNCOUNTED: frozenset[Scope] = frozenset({"admin", "metrics"})
# The guard has checked the key by then; this is how OpenAPI shows that there is one.
_BEARER = HTTPBearer(auto_error=False, description="An API key (plt_…) or a token, where the server asks for one.")


def require_scope(scope: Scope) -> Any:
    """For the `dependencies` of a closed route or its router: the key must have `scope`."""
    return Security(_BEARER, scopes=[scope])


def open_router(**options: Any) -> APIRouter:
    """A router with these options of the framework's, whose operations have the names of their functions."""
    return APIRouter(generate_unique_id_function=_operation_id, **options)


def scoped_router(scope: Scope, tag: str, prefix: str = "", route_class: type[APIRoute] | None = None) -> APIRouter:
    """A router whose routes need `scope`, under one tag of the OpenAPI."""
    route_class = route_class or ScopedRoute
    return open_router(prefix=prefix, tags=[tag], route_class=route_class, dependencies=[require_scope(scope)])


class ScopedRoute(APIRoute):
    """A route that answers only callers with the scopes that it needs, and nobody where it names none.

    Whoever uses adapters is also held to the tenant's quotas. Who may set quotas is not, or could lock themselves out.
    Then the body is read, which is bounded, and the endpoint called.
    """

    # Answers a plain endpoint's requests.
    _plain: Handler | None = None

    @cached_property
    def scopes(self) -> frozenset[Scope]:
        """Those that a caller must have, all of them."""
        return frozenset(_scopes(self.dependencies))

    def get_route_handler(self) -> Handler:
        """The framework's, over a body that is bounded; where it changes something, it must be unambiguous."""
        handle, field = super().get_route_handler(), self.body_field
        if field is None or isinstance(field.field_info, params.Form):
            # An upload's form has bounds of its own.
            return handle
        hook = None if "predict" in self.scopes else unique
        annotation: Any = field.field_info.annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return bounded(handle, None, hook)
        if not self._is_plain:
            return bounded(handle, annotation, hook)
        self._plain = bounded(self._answer_plain, annotation, hook)
        return bounded(handle, annotation, hook)

    @property
    def _is_plain(self) -> bool:
        """Whether the endpoint takes names from the path, a body and the request, no more, and makes its response."""
        dependant, endpoint = self.dependant, inspect.signature(self.endpoint)
        names = {one.name for one in (*dependant.path_params, *dependant.body_params)} | {dependant.request_param_name}
        return (
            names == endpoint.parameters.keys()
            and endpoint.return_annotation is Response
            and all(one.field_info.annotation is str and not one.field_info.metadata for one in dependant.path_params)
            and all(isinstance(one, params.Security) for one in self.dependencies)
        )

    async def _answer_plain(self, request: Request) -> Response:
        (body,) = self.dependant.body_params
        if not await request.body():
            raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required"}])
        given = {**request.path_params, body.name: await request.json()}
        response: Response = await self.endpoint(**given, **{str(self.dependant.request_param_name): request})
        return response

    async def handle(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Lets the request in, or answers in the route's place."""
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        caller = context_of(scope).caller
        self._check(caller)
        if not self.scopes.isdisjoint(_UNCOUNTED):
            await self._call(scope, receive, send)
            return
        enforcer: QuotaEnforcer = scope["app"].state.enforcer
        slot = enforcer.slot(caller.tenant)
        send = slot.with_ratelimit_headers(send)
        try:
            async with slot:
                await self._call(scope, receive, send)
        except QuotaExceeded as error:
            # On entering; what the route itself raises is answered within it.
            await error_response(error, scope)(scope, receive, send)

    async def _call(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Calls a plain endpoint itself: the framework takes 30 µs to open contexts and solve dependencies, and the
        whole answer takes some 400 µs besides the model. The framework refuses a body that is not declared as JSON."""
        request = Request(scope, receive, send)
        if self._plain is None or request.headers.get("content-type") != JSON:
            await super().handle(scope, receive, send)
            return
        try:
            response = await self._plain(request)
        except ANSWERED as error:
            response = await answer_error(request, error)
        await response(scope, receive, send)

    def _check(self, caller: Caller) -> None:
        if not self.scopes:
            raise Forbidden("this route names no scope, so no key opens it")
        for needed in self.scopes:
            caller.require(needed)


def refuse_open_routes(app: FastAPI, keyed_paths: frozenset[str]) -> None:
    """Raises `RuntimeError` unless every route of the app names a scope, is open to strangers, or is one of
    `keyed_paths`, which any key opens."""
    pages = keyed_paths | {app.openapi_url}
    for route in app.routes:
        path = getattr(route, "path", "")
        is_closed = isinstance(route, ScopedRoute) and bool(route.scopes)
        if not (is_closed or path in OPEN_PATHS or path in pages):
            raise RuntimeError(f"route {path or route} names no scope; give it dependencies=[require_scope(…)]")


def _scopes(dependencies: Iterable[params.Depends]) -> Iterable[Scope]:
    for dependency in dependencies:
        if isinstance(dependency, params.Security):
            yield from cast("Iterable[Scope]", dependency.scopes or ())


def _operation_id(route: APIRoute) -> str:
    return route.name
