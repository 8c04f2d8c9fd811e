"""What routes ask for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends, Request

from peltier_server.auth.caller import Caller
from peltier_server.auth.keyring import Keyring
from peltier_server.context import Origin
from peltier_server.errors import ClientGone
from peltier_server.http.lifecycle import Lifecycle
from peltier_server.http.uploads import Intake
from peltier_server.inference.prediction import Opening
from peltier_server.inference.resolved_task import Target
from peltier_server.service import Service

T = TypeVar("T")

_WATCH_AFTER_SECONDS = 0.1


def get_lifecycle(request: Request) -> Lifecycle:
    """The life of the app that serves the request."""
    lifecycle: Lifecycle = request.app.state.lifecycle
    return lifecycle


def accept(request: Request) -> Service:
    """The service, which does not stop before the request is answered."""
    return get_lifecycle(request).service(admitted=request.state.admitted)


async def accept_change(request: Request) -> Service:
    """The same for a request that changes what is stored; raises what the store's watch raises where that is gone."""
    service = accept(request)
    await service.store_watch.require_present()
    return service


def get_caller(request: Request) -> Caller:
    """Who asks, as the guard has found."""
    caller: Caller = request.state.caller
    return caller


def aim(request: Request, service: Service, task: str) -> Target:
    """The version that `task` means now; the request is measured and logged as one for it."""
    target = service.predictor.aim(get_origin(request), task)
    request.state.target = target
    return target


def get_origin(request: Request) -> Origin:
    """Who asks, in which request."""
    return Origin(request.state.caller, request.state.request_id, request.state.answer_bytes)


def get_intake(request: Request) -> Intake:
    """Where uploads wait for their turn."""
    intake: Intake = request.app.state.intake
    return intake


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
Uploads = Annotated[Intake, at_once(get_intake)]
Keys = Annotated[Keyring, at_once(get_keyring)]
Asking = Annotated[Caller, at_once(get_caller)]
From = Annotated[Origin, at_once(get_origin)]


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
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


class Writing(Protocol):
    """An answer that comes bit by bit."""

    async def begin(self) -> Opening:
        """Returns once there is something to say; raises what went wrong until then."""

    def close(self) -> None:
        """Ends it."""


async def begin(request: Request, stream: Writing) -> Opening:
    """Returns once `stream` has something to say: what keeps it from speaking at all is an ordinary error."""
    try:
        return await unless_gone(request, stream.begin())
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
