"""The connection pool of asynchronous code, with retries."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import httpx2
import stamina

from peltier_client.errors import InvalidInput, PeltierError, TimedOut
from peltier_client.exchange.connection import ServerConnection, http_request, is_worth_retrying
from peltier_client.exchange.forks import OwnBody, num_forks
from peltier_client.exchange.in_flight import AsyncRequestGate, is_refusal
from peltier_client.exchange.patience import E, Patience
from peltier_client.exchange.request import Page, Request
from peltier_client.protocol.session import TENANT_HEADER

T = TypeVar("T")
P = TypeVar("P", bound=Page)


@dataclass(frozen=True)
class AsyncPool:
    """Connections and the requests in flight on them, of a process that `num_forks` forks made. It holds the pool of
    the `parent`, whose connections this process must neither use nor end."""

    http: httpx2.AsyncClient
    gate: AsyncRequestGate
    num_forks: int
    parent: "AsyncPool | None"


class AsyncSender:
    """The connection pool of one server, with retries and a limit on requests in flight that follows the server. A
    forked process opens a pool of its own, or is refused if the transport was given. Every method raises a
    `PeltierError`."""

    def __init__(self, connection: ServerConnection, transport: httpx2.AsyncBaseTransport | None) -> None:
        self.connection = connection
        self._transport = transport
        self._pool = self._open_pool(None)
        self._retrying = stamina.AsyncRetryingCaller(**connection.retrying)
        self._tenant = connection.tenant

    async def send(self, request: Request[T]) -> T:
        """The result of `request`, with retries if the request allows them."""
        if not request.retried:
            return await self._send_once(request)
        return await self._retrying(partial(is_worth_retrying, request), self._send_once, request)

    async def pages(self, request: Request[P], key: str = "cursor") -> AsyncIterator[P]:
        """The pages of a list; `request` is for the first, and `key` names the cursor in the query of the others."""
        while True:
            page = await self.send(request)
            yield page
            if page.next_cursor is None:
                return
            request = replace(request, query={**request.query, key: page.next_cursor})

    async def wait(
        self,
        request: Request[E],
        name: str,
        timeout: float | None,  # noqa: ASYNC109 - the sync form too
        on_progress: Callable[[E], object] | None = None,
    ) -> E:
        """The result of `request`, asked for again until it has ended. `name` is what is waited for; `on_progress` gets
        each answer.

        Raises `TimedOut` after `timeout` seconds, and when the server is away for three minutes.
        """
        end = None if timeout is None else time.monotonic() + timeout
        pace, patience = Patience(), Patience()
        while True:
            try:
                found = await self.send(request)
                if on_progress is not None:
                    on_progress(found)
                if found.has_ended:
                    return found
                patience.renew()
                pause = pace.pause()
            except PeltierError as error:
                pause = patience.pause(error)
            if end is not None and time.monotonic() + pause > end:
                raise TimedOut(f"{name} has not ended within {timeout:g} s")
            await asyncio.sleep(pause)

    async def open(self, request: Request[T]) -> tuple[httpx2.Response, T]:
        """A response whose body is not read yet, and the reader of its events; the caller closes the response."""
        return await self._retrying(partial(is_worth_retrying, request), self._open_once, request)

    async def close(self) -> None:
        """Close all connections."""
        if not self._is_shared:
            await self._own_pool().http.aclose()

    def _open_pool(self, parent: AsyncPool | None) -> AsyncPool:
        http = httpx2.AsyncClient(**self.connection.options, transport=self._transport)
        return AsyncPool(http, AsyncRequestGate(), num_forks(), parent)

    @property
    def _is_shared(self) -> bool:
        """Whether the connections are those of a given transport, which the parent of this process uses too."""
        return self._transport is not None and self._pool.num_forks != num_forks()

    def _own_pool(self) -> AsyncPool:
        pool = self._pool
        if pool.num_forks != num_forks() and not pool.http.is_closed:
            if self._is_shared:
                raise InvalidInput(
                    "the client was given its transport before this process was forked, which would read answers from "
                    "the parent's connections: create a client in this process"
                )
            pool = self._pool = self._open_pool(pool)
        return pool

    async def _send_once(self, request: Request[T]) -> T:
        return request.read(await self._exchange(request, is_stream=False))

    async def _open_once(self, request: Request[T]) -> tuple[httpx2.Response, T]:
        response = await self._exchange(request, is_stream=True)
        try:
            return response, request.read(response)
        except PeltierError:
            await response.aclose()
            raise

    async def _exchange(self, request: Request[T], *, is_stream: bool) -> httpx2.Response:
        """The whole response to `request`; of a stream that begins, the head."""
        pool = self._own_pool()
        try:
            async with pool.gate.enter() as exchange:
                response = await self._begin(pool, request)
                if not (is_stream and response.is_success):
                    try:
                        await response.aread()
                    finally:
                        await response.aclose()
                exchange.is_refused = is_refusal(response.status_code, response.headers)
        except httpx2.RequestError as error:
            raise self.connection.failure(error) from error
        self._tenant = response.headers.get(TENANT_HEADER, self._tenant)
        return response

    async def _begin(self, pool: AsyncPool, request: Request[T]) -> httpx2.Response:
        """The head of the answer to `request`, whose body is not read yet."""
        response = await pool.http.send(http_request(pool.http, request, self._tenant), stream=True)
        response.stream = OwnBody(response, request.on_progress if request.file is None else None)
        try:
            if self._transport is None:  # a given one may replay recorded answers
                self.connection.require_answer(response)
        except PeltierError:
            await response.aclose()  # ends the connection too, because the body is unread
            raise
        return response
