"""FastAPI's app with the middleware of this server only, what its routes share, and how a route gets it."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Query, Request, Response
from peltier_adapters.spec.tasks import TaskType
from peltier_client.errors import InvalidInput
from peltier_client.protocol.predict import Input, Parameters
from starlette.types import ASGIApp, Receive, Scope, Send

from peltier_server.auth.authenticator import Authenticator
from peltier_server.auth.keyring import Keyring
from peltier_server.context import RequestContext, context_of
from peltier_server.errors import PELTIER_ERRORS, TASK_ERRORS, ErrorShape, scoped_errors
from peltier_server.fairness.preparation import Preparation
from peltier_server.http.disconnects import Watches, cancel_on_disconnect
from peltier_server.http.lifecycle import Lifecycle
from peltier_server.http.uploads import UploadTurns
from peltier_server.inference.prediction import TRUNCATION_HEADER, JSONBytes, Prediction, truncation_header, write_json
from peltier_server.inference.prediction_request import ResolvedTask
from peltier_server.metrics.metrics import Metrics
from peltier_server.quotas.enforcer import QuotaEnforcer

if TYPE_CHECKING:
    from peltier_server.service import Service

T = TypeVar("T")

# The most entries of a page of a list.
MAX_PAGE = 1000

# The page of metrics of every replica, in Prometheus' text format, by the id of the replica.
MetricsPages = Callable[[], Awaitable[Mapping[str, bytes]]]


@dataclass(frozen=True)
class AppState:
    """What the routes of one app share. An address of one of `error_shapes` answers errors in that shape."""

    lifecycle: Lifecycle
    metrics: Metrics
    authenticator: Authenticator
    enforcer: QuotaEnforcer
    upload_turns: UploadTurns
    preparation: Preparation
    error_shapes: Sequence[ErrorShape] = ()
    # Only where one address has several replicas.
    metrics_pages: MetricsPages | None = None
    # A page for browsers, which an extension serves; it and the files below it need no caller.
    page: str | None = None
    # The most files and connections that extensions have open.
    num_files: int = 0
    watches: Watches = field(default_factory=Watches)
    # The names of the extensions that serve.
    extensions: Collection[str] = ()
    # What extensions have started, by its type.
    started: dict[type, Any] = field(default_factory=dict)

    @property
    def keyring(self) -> Keyring:
        """The tenants and keys."""
        return self.authenticator.keyring


class Application(FastAPI):
    """Routes behind the middleware that is added to it.

    The framework would add six layers of its own, which take a quarter of the time of a small answer. This server has
    no use for them here: `RequestMiddleware` answers every exception, `FrameworkRoute` has what the framework's
    endpoints need, bodies have bounds of their own, and metrics are at `/metrics`.
    """

    def __init__(self, state: AppState, **options: Any) -> None:
        super().__init__(**options)
        self.state: Any = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request to the middleware, without the framework's telemetry."""
        if scope["type"] != "http" or self.middleware_stack is None:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        await self.middleware_stack(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """The middleware that was added, the last one outermost, around the router."""
        app: ASGIApp = self.router
        for cls, args, kwargs in reversed(self.user_middleware):
            app = cls(app, *args, **kwargs)
        return app


def state_of(request: Request) -> AppState:
    """What the routes of the app share that serves the request."""
    state: AppState = request.app.state
    return state


def accept(request: Request) -> "Service":
    """The service, which does not stop before the request is answered. Raises `Draining` or `NotReady` where there
    is none.
    """
    return state_of(request).lifecycle.service(admitted=get_context(request).admitted)


async def accept_change(request: Request) -> "Service":
    """The service for a request that changes stored data. Raises what `accept` raises, and the error of the store
    watch where the store is missing.
    """
    service = accept(request)
    await service.store_watch.require_present()
    return service


def resolve(request: Request, task: str, types: Sequence[TaskType] = ()) -> ResolvedTask:
    """The version that `task` names now. The request is measured and logged as a request for this version. Raises
    `InvalidInput` if `types` are given and the task has none of them.
    """
    context = get_context(request)
    target = accept(request).predictor.resolve(context, task)
    context.version = target.entry.labels
    kind = target.entry.task.type
    if types and kind not in types:
        *others, last = types
        wanted = f"{', '.join(others)} or {last}" if others else last
        name = str(target.reference)
        raise InvalidInput(f"task {name!r} is of type {kind}; this address answers tasks of type {wanted}")
    return target


def resolve_embedding(
    request: Request, model: str, types: Collection[TaskType] = frozenset[TaskType]({"embedding"})
) -> ResolvedTask:
    """The version that `model` names. Raises `InvalidInput` if it does not embed texts in the form of these `types`."""
    target = resolve(request, model)
    kind = target.entry.task.type
    if target.entry.task.embeds and kind not in types:
        raise InvalidInput(f"model {model!r} is a {kind} task; this route is for {' and '.join(types)} tasks")
    if kind not in types:
        raise InvalidInput(
            f"model {model!r} is a {kind} task, which embeds no texts; its answers are at /v1/tasks/{model}/predict"
        )
    return target


async def predict_with(
    request: Request, target: ResolvedTask, inputs: Sequence[Input], parameters: Parameters
) -> Prediction:
    """One prediction per input, in order. They are no longer computed once the caller has disconnected."""
    predictor = accept(request).predictor
    return await cancel_on_disconnect(request, predictor.predict(target, inputs, parameters))


def listed(given: str | list[str]) -> list[str]:
    """The texts of a field that has one or many."""
    return [given] if isinstance(given, str) else given


def task_responses(shape: ErrorShape = PELTIER_ERRORS) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that predicts with one task, for OpenAPI."""
    return {200: {"headers": TRUNCATION_HEADER}, **scoped_errors(*TASK_ERRORS, shape=shape)}


def started(request: Request, kind: type[T]) -> T:
    """What an extension has started, from the type of it. There is one once `accept` returns."""
    found: T = state_of(request).started[kind]
    return found


async def answer_json(request: Request, value: object, num_truncated: int = 0) -> Response:
    """The 200 with the JSON of a value (`json_pieces`), and a header if inputs were truncated."""
    body = await write_json(state_of(request).preparation, get_context(request), value)
    return JSONBytes(body, truncation_header(num_truncated))


def get_context(request: Request) -> RequestContext:
    """The context of the request, which names its caller."""
    return context_of(request.scope)


def at_once(get: Callable[[Request], T]) -> Any:
    """`get` as a dependency that runs on the event loop. The framework would call a plain function in a thread,
    which takes several times as long as everything else in a request except the model.
    """

    async def depend(request: Request) -> T:
        return get(request)

    return Depends(depend)


AnyTime = Annotated[Lifecycle, at_once(lambda request: state_of(request).lifecycle)]
Accepted = Annotated["Service", at_once(accept)]
Changing = Annotated["Service", Depends(accept_change)]
Uploads = Annotated[UploadTurns, at_once(lambda request: state_of(request).upload_turns)]
Threads = Annotated[Preparation, at_once(lambda request: state_of(request).preparation)]
Keys = Annotated[Keyring, at_once(lambda request: state_of(request).keyring)]
Context = Annotated[RequestContext, at_once(get_context)]

# The query parameters of lists that are read page by page.
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="How many entries at most.")]
# A cursor of a list that is ordered by name or by the prefix of a key.
NameCursor = Annotated[str, Query(max_length=64, description="`next_cursor` of the page before.")]
# An integer of eighteen digits fits in every database.
NumberCursor = Annotated[str, Query(pattern="^[0-9]{0,18}$", description="`next_cursor` of the page before.")]
