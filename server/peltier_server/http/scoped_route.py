"""Routes that require a scope, and check it before a byte of the body is read; and those that receive uploads."""

import inspect
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, cast

from fastapi import APIRouter, FastAPI, Request, Response, Security, params
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from peltier_client.errors import Forbidden
from peltier_client.protocol.administration import Scope
from pydantic import BaseModel
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from peltier_server.auth.keyring import Caller
from peltier_server.context import BodyLimit, context_of
from peltier_server.errors import undeclared
from peltier_server.http.application import get_context, state_of
from peltier_server.http.bodies import Handler, bounded, unique
from peltier_server.http.request_middleware import is_open
from peltier_server.quotas.enforcer import QuotaEnforcer

# Routes of these scopes operate and monitor the server. The quotas of a tenant never apply to them.
_UNCOUNTED: frozenset[Scope] = frozenset({"admin", "metrics"})
# `RequestMiddleware` has already checked the key. This declares the key in the OpenAPI.
_BEARER = HTTPBearer(auto_error=False, description="An API key (plt_…) or a token, where the server asks for one.")


def require_scope(*scopes: Scope) -> Any:
    """A dependency of a route or its router: the key of the caller must have `scopes`."""
    return Security(_BEARER, scopes=list(scopes))


def open_router(**options: Any) -> APIRouter:
    """A router with these options of the framework, whose OpenAPI operations have the names of their functions."""
    return APIRouter(generate_unique_id_function=_operation_id, **{"route_class": FrameworkRoute, **options})


def scoped_router(
    scope: Scope | Sequence[Scope], tag: str, prefix: str = "", route_class: type[APIRoute] | None = None
) -> APIRouter:
    """A router whose routes need `scope`, under one tag of the OpenAPI."""
    scopes = (scope,) if isinstance(scope, str) else scope
    route_class = route_class or ScopedRoute
    return open_router(prefix=prefix, tags=[tag], route_class=route_class, dependencies=[require_scope(*scopes)])


class FrameworkRoute(APIRoute):
    """A route whose endpoint the framework calls, within the middleware that closes the files of a form."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.app = AsyncExitStackMiddleware(self.app)


class ScopedRoute(FrameworkRoute):
    """A route that answers only callers with all scopes that it names. A route that names no scope refuses every
    caller.

    Routes that use adapters also apply the quotas of the caller's tenant. The routes of administrators and of metrics
    do not, so that an administrator who sets quotas cannot lose access. Then the route reads the body, which is
    bounded, and calls the endpoint.
    """

    # Whether one of the scopes is enough. The endpoint then decides what it opens.
    needs_one = False
    # Whether a body is read whatever its content type says.
    reads_any_type = False
    # The handler of a plain endpoint, None for any other endpoint.
    _plain: Handler | None = None

    @cached_property
    def scopes(self) -> frozenset[Scope]:
        """The scopes that a caller must have, all of them."""
        return frozenset(_scopes(self.dependencies))

    def get_route_handler(self) -> Handler:
        """The framework's handler, with a bounded body. If the route changes stored data, it also refuses JSON
        objects that give a name twice.
        """
        handle, field = super().get_route_handler(), self.body_field
        if field is None or isinstance(field.field_info, params.Form):
            # The form of an upload has its own bounds.
            return handle
        hook = None if "predict" in self.scopes else unique
        annotation: Any = field.field_info.annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return bounded(handle, None, hook)
        if self._is_plain:
            self._plain = bounded(self._answer_plain, annotation, hook, self.json_length)
        return bounded(handle, annotation, hook)

    def json_length(self, request: Request) -> int | None:
        """The length in bytes of the JSON at the start of the body; None if the whole body is JSON."""
        return None

    @property
    def _is_plain(self) -> bool:
        """Whether the endpoint takes only strings from the path, one body and the request, and returns a `Response`
        itself.
        """
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
        given = dict(request.path_params)
        if await request.body():
            if not (self.reads_any_type or _is_json(get_context(request).headers.get("content-type", ""))):
                raise undeclared()
            given[body.name] = await request.json()
        elif body.field_info.is_required():
            raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required"}])
        response: Response = await self.endpoint(**given, **{str(self.dependant.request_param_name): request})
        return response

    async def handle(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Checks the caller's scopes and quotas, then calls the endpoint. `RequestMiddleware` answers the errors."""
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        context = context_of(scope)
        self._check(context.caller)
        if not self.scopes.isdisjoint(_UNCOUNTED):
            await self._call(scope, receive, send)
            return
        enforcer: QuotaEnforcer = scope["app"].state.enforcer
        slot = enforcer.slot(context.tenant)
        context.quota_headers = slot.headers
        await slot.enter()
        # The middleware ends the slot, because it answers the errors.
        context.leave_slot = slot.leave
        await self._call(scope, receive, send)

    async def _call(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Calls a plain endpoint directly. The framework takes 30 µs to open contexts and solve dependencies, out of
        some 400 µs for the whole answer without the model.
        """
        if self._plain is None:
            await super().handle(scope, receive, send)
            return
        response = await self._plain(Request(scope, receive, send))
        await response(scope, receive, send)

    def _check(self, caller: Caller) -> None:
        if not self.scopes:
            raise Forbidden("this route names no scope, so no key opens it")
        if self.needs_one:
            caller.require_one(self.scopes)
            return
        for needed in self.scopes:
            caller.require(needed)


def refuse_open_routes(app: FastAPI, keyed_paths: frozenset[str]) -> None:
    """Raises `RuntimeError` unless every route of the app names a scope, needs no caller, or is one of
    `keyed_paths`, which accept any key.
    """
    pages = keyed_paths | {app.openapi_url}
    for route in app.routes:
        path = getattr(route, "path", "")
        is_closed = isinstance(route, ScopedRoute) and bool(route.scopes)
        if not (is_closed or is_open(path, app.state.page) or path in pages):
            raise RuntimeError(f"route {path or route} names no scope; give it dependencies=[require_scope(…)]")


def _scopes(dependencies: Iterable[params.Depends]) -> Iterable[Scope]:
    for dependency in dependencies:
        if isinstance(dependency, params.Security):
            yield from cast("Iterable[Scope]", dependency.scopes or ())


def _is_json(content_type: str) -> bool:
    """Whether a body of this type is JSON, as the framework judges it."""
    kind, _, subtype = content_type.partition(";")[0].strip().lower().partition("/")
    return kind == "application" and (subtype == "json" or subtype.endswith("+json"))


def _operation_id(route: APIRoute) -> str:
    return route.name


class UploadRoute(ScopedRoute):
    """Receives as many uploads at once as the `UploadTurns` of the app allow, each of at most `max_bytes`."""

    def max_bytes(self, request: Request) -> int:
        """The most bytes of a body: here those of an artifact with its report."""
        return state_of(request).upload_turns.max_bytes

    def get_route_handler(self) -> Handler:
        """The framework's handler, which first waits for its turn to receive an upload."""
        handle = super().get_route_handler()

        async def in_turn(request: Request) -> Response:
            context = get_context(request)
            async with state_of(request).upload_turns.receive(context.tenant):
                context.body_limit = BodyLimit(self.max_bytes(request))
                return await handle(request)

        return in_turn
