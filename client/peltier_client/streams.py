"""Texts that come as they are written, over either kind of connection."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import aclosing, closing
from typing import Self

import httpx2

from peltier_client.results import Predictions
from peltier_client.text_reader import TextReader
from peltier_client.transport import Connection

Opened = tuple[httpx2.Response, TextReader]


class TextStream(Iterator[str]):
    """The pieces of one text, asked for when the first is wanted; `close` tells the server to stop writing.

    `predictions` is the whole answer, as `predict` gives it, once the pieces have ended.
    """

    def __init__(self, open_: Callable[[], Opened], connection: Connection) -> None:
        self._open, self._connection = open_, connection
        self._pieces = self._receive()
        self.predictions: Predictions | None = None

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """Let go of the pieces that have not come yet."""
        self._pieces.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self) -> Generator[str, None, None]:
        response, reader = self._open()
        with closing(response):
            try:
                for event in httpx2.EventSource(response):
                    if piece := reader.read(event):
                        yield piece
            except httpx2.RequestError as error:
                raise self._connection.failure(error) from error
        self.predictions = reader.end()


class AsyncTextStream(AsyncIterator[str]):
    """`TextStream` for `async for` and `async with`."""

    def __init__(self, open_: Callable[[], Awaitable[Opened]], connection: Connection) -> None:
        self._open, self._connection = open_, connection
        self._pieces = self._receive()
        self.predictions: Predictions | None = None

    async def __anext__(self) -> str:
        return await anext(self._pieces)

    async def close(self) -> None:
        """Let go of the pieces that have not come yet."""
        await self._pieces.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _receive(self) -> AsyncGenerator[str, None]:
        response, reader = await self._open()
        async with aclosing(response):
            try:
                async for event in httpx2.EventSource(response):
                    if piece := reader.read(event):
                        yield piece
            except httpx2.RequestError as error:
                raise self._connection.failure(error) from error
        self.predictions = reader.end()
