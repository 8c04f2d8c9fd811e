"""What routes ask for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends, Request

from peltier_server.auth.keyring import Keyring
from peltier_server.context import RequestContext, context_of
from peltier_server.errors import ClientGone
from peltier_server.http.lifecycle import Lifecycle
from peltier_server.http.uploads import UploadTurns
from peltier_server.inference.prediction import StreamStart
from peltier_server.inference.resolved_task import ResolvedTask
from peltier_server.service import Service

T = TypeVar("T")

_WATCH_AFTER_SECONDS = 0.1


def get_lifecycle(request: Request) -> Lifecycle:
    """The life of the app that serves the request."""
    lifecycle: Lifecycle = request.app.state.lifecycle
    return lifecycle


def accept(request: Request) -> Service:
    """The service, which does not stop before the request is answered."""
    return get_lifecycle(request).service(admitted=get_context(request).admitted)


async def accept_change(request: Request) -> Service:
    """The same for a request that changes what is stored; raises what the store's watch raises where that is gone."""
    service = accept(request)
    await service.store_watch.require_present()
    return service


def resolve(request: Request, service: Service, task: str) -> ResolvedTask:
    """The version that `task` means now; the request is measured and logged as one for it."""
    context = get_context(request)
    target = service.predictor.resolve(context, task)
    context.version = target.entry.labels
    return target


def get_context(request: Request) -> RequestContext:
    """Who asks, in which request."""
    return context_of(request.scope)


def get_upload_turns(request: Request) -> UploadTurns:
    """Where uploads wait for their turn."""
    upload_turns: UploadTurns = request.app.state.upload_turns
    return upload_turns


def get_keyring(request: Request) -> Keyring:
    """The tenants and keys of the app that serves the request."""
    keyring: Keyring = request.app.state.keyring
    return keyring


def at_once(get: Callable[[Request], T]) -> Any:
    """`get` as a dependency that runs on the event loop: the framework would call a plain function in a thread, which
    takes several times as long as all else that a request needs besides the model."""

    async def depend(request: Request) -> T:
        return get(request)

    return Depends(depend)


AnyTime = Annotated[Lifecycle, at_once(get_lifecycle)]
Accepted = Annotated[Service, at_once(accept)]
Changing = Annotated[Service, Depends(accept_change)]
Uploads = Annotated[UploadTurns, at_once(get_upload_turns)]
Keys = Annotated[Keyring, at_once(get_keyring)]
Context = Annotated[RequestContext, at_once(get_context)]


async def cancel_on_disconnect(request: Request, work: Awaitable[T]) -> T:
    """What `work` gives; cancels it and raises `ClientGone` when the caller hangs up first."""
    watch = _Watch(request)
    try:
        return await work
    except asyncio.CancelledError:
        if not watch.gone:
            raise
        watch.task.uncancel()
        raise ClientGone from None
    finally:
        watch.end()


class StreamedAnswer(Protocol):
    """An answer that comes bit by bit."""

    async def begin(self) -> StreamStart:
        """Returns once there is something to say; raises what went wrong until then."""

    def close(self) -> None:
        """Ends it."""


async def begin(request: Request, stream: StreamedAnswer) -> StreamStart:
    """Returns once `stream` has something to say: what keeps it from speaking at all is an ordinary error."""
    try:
        return await cancel_on_disconnect(request, stream.begin())
    except BaseException:
        stream.close()
        raise


class _Watch:
    """Cancels the task that made it once the caller of `request` has hung up.

    It begins late: a task for each request would cost more than all of its HTTP, and most are answered before.
    """

    def __init__(self, request: Request) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.gone = False
        self._request = request
        self._watcher: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_SECONDS, self._begin)

    def end(self) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _begin(self) -> None:
        self._watcher = asyncio.create_task(self._wait_and_cancel())

    async def _wait_and_cancel(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self.task.cancel()
