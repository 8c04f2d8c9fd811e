"""The dependencies of routes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends, Request

from peltier_server.auth.keyring import Keyring
from peltier_server.context import RequestContext, context_of
from peltier_server.errors import ClientGone
from peltier_server.fairness.preparation import Preparation
from peltier_server.http.disconnects import Watches
from peltier_server.http.lifecycle import Lifecycle
from peltier_server.http.uploads import UploadTurns
from peltier_server.inference.prediction import StreamStart
from peltier_server.inference.prediction_request import ResolvedTask
from peltier_server.service import Service

T = TypeVar("T")


def get_lifecycle(request: Request) -> Lifecycle:
    """The lifecycle of the app that serves the request."""
    lifecycle: Lifecycle = request.app.state.lifecycle
    return lifecycle


def accept(request: Request) -> Service:
    """The service, which does not stop before the request is answered. Raises `Draining` or `NotReady` where there
    is none.
    """
    return get_lifecycle(request).service(admitted=get_context(request).admitted)


async def accept_change(request: Request) -> Service:
    """The service for a request that changes stored data. Raises what `accept` raises, and the error of the store
    watch where the store is missing.
    """
    service = accept(request)
    await service.store_watch.require_present()
    return service


def resolve(request: Request, service: Service, task: str) -> ResolvedTask:
    """The version that `task` names now. The request is measured and logged as a request for this version."""
    context = get_context(request)
    target = service.predictor.resolve(context, task)
    context.version = target.entry.labels
    return target


def get_context(request: Request) -> RequestContext:
    """The context of the request, which names its caller."""
    return context_of(request.scope)


def get_upload_turns(request: Request) -> UploadTurns:
    """The queue of uploads of the app that serves the request."""
    upload_turns: UploadTurns = request.app.state.upload_turns
    return upload_turns


def get_preparation(request: Request) -> Preparation:
    """The threads of the app that serves the request."""
    preparation: Preparation = request.app.state.preparation
    return preparation


def get_keyring(request: Request) -> Keyring:
    """The tenants and keys of the app that serves the request."""
    keyring: Keyring = request.app.state.keyring
    return keyring


def at_once(get: Callable[[Request], T]) -> Any:
    """`get` as a dependency that runs on the event loop. The framework would call a plain function in a thread,
    which takes several times as long as everything else in a request except the model.
    """

    async def depend(request: Request) -> T:
        return get(request)

    return Depends(depend)


AnyTime = Annotated[Lifecycle, at_once(get_lifecycle)]
Accepted = Annotated[Service, at_once(accept)]
Changing = Annotated[Service, Depends(accept_change)]
Uploads = Annotated[UploadTurns, at_once(get_upload_turns)]
Threads = Annotated[Preparation, at_once(get_preparation)]
Keys = Annotated[Keyring, at_once(get_keyring)]
Context = Annotated[RequestContext, at_once(get_context)]


async def cancel_on_disconnect(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`. Cancels `work` and raises `ClientGone` if the caller disconnects first."""
    watches: Watches = request.app.state.watches
    watch = watches.add(request)
    try:
        return await work
    except asyncio.CancelledError:
        if not watch.gone:
            raise
        watch.task.uncancel()
        raise ClientGone from None
    finally:
        watches.end(watch)


class StreamedAnswer(Protocol):
    """An answer that is sent in parts."""

    async def begin(self) -> StreamStart:
        """Returns once the first part of the answer can be sent. Raises any error that occurs before."""

    def close(self) -> None:
        """Ends the answer and releases what it holds."""


async def begin(request: Request, stream: StreamedAnswer) -> StreamStart:
    """Returns once the first part of `stream` can be sent. An error before that closes `stream` and is raised, so
    that the route answers it as an ordinary error.
    """
    try:
        return await cancel_on_disconnect(request, stream.begin())
    except BaseException:
        stream.close()
        raise
