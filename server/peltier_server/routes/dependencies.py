"""What routes ask for."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from peltier_server.errors import ClientGone
from peltier_server.lifecycle import Lifecycle
from peltier_server.service import Service

T = TypeVar("T")


def get_lifecycle(request: Request) -> Lifecycle:
    """The life of the app that serves the request."""
    lifecycle: Lifecycle = request.app.state.lifecycle
    return lifecycle


async def accept(request: Request) -> AsyncIterator[Service]:
    """The ready service, kept from stopping until the request is answered."""
    with get_lifecycle(request).accept() as service:
        yield service


AnyTime = Annotated[Lifecycle, Depends(get_lifecycle)]
Accepted = Annotated[Service, Depends(accept)]


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns; cancels it and raises `ClientGone` when the caller hangs up first."""
    answer = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientGone
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
