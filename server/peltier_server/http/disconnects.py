"""Cancels the work for callers who disconnect before they are answered."""

import asyncio
from asyncio import TimerHandle
from collections.abc import Awaitable
from typing import Protocol, TypeVar

from starlette.requests import Request

from peltier_server.errors import ClientGone
from peltier_server.inference.prediction import StreamStart

T = TypeVar("T")

_AFTER_SECONDS = 0.1


class Watches:
    """The watches of requests in progress. A watch begins at least 0.1 and at most 0.2 s after its request: a task for
    each request would cost more than all of its HTTP, and most requests are answered before that time. One timer
    serves all of them. Belongs to one event loop.
    """

    def __init__(self) -> None:
        self._new, self._old = set[Watch](), set[Watch]()
        self._timer: TimerHandle | None = None

    def add(self, request: Request) -> "Watch":
        """A watch that cancels the current task once the caller of `request` disconnects."""
        watch = Watch(request)
        self._new.add(watch)
        if self._timer is None:
            self._start_timer()
        return watch

    def end(self, watch: "Watch") -> None:
        """Ends a watch."""
        self._new.discard(watch)
        self._old.discard(watch)
        if watch.watcher is not None:
            watch.watcher.cancel()

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_AFTER_SECONDS, self._look)

    def _look(self) -> None:
        for watch in self._old:
            watch.begin()
        self._old, self._new = self._new, set()
        self._timer = None
        if self._old:
            self._start_timer()


class Watch:
    """Cancels the task that created it once the caller of `request` disconnects. Then it is `gone`."""

    def __init__(self, request: Request) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.gone = False
        self.watcher: asyncio.Task[None] | None = None
        self._request = request

    def begin(self) -> None:
        """Begins to wait for the caller."""
        self.watcher = asyncio.create_task(self._wait_and_cancel())

    async def _wait_and_cancel(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self.task.cancel()


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
