"""The stream of one generated text, for asynchronous code."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Self

import httpx2

from peltier_client.asynchronous.sender import AsyncSender
from peltier_client.exchange.request import Request
from peltier_client.exchange.results import Predictions, TextReader


class AsyncTextStream(AsyncIterator[str]):
    """The pieces of one text. Iterating sends the request; `close` stops the generation.

    `predictions` is the whole answer, as `predict` returns it, after the last piece.
    """

    def __init__(self, sender: AsyncSender, request: Request[TextReader]) -> None:
        self._sender, self._request = sender, request
        self._pieces = self._receive()
        self.predictions: Predictions | None = None

    async def __anext__(self) -> str:
        return await anext(self._pieces)

    async def close(self) -> None:
        """Receive no further pieces."""
        await self._pieces.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _receive(self) -> AsyncGenerator[str, None]:
        response, reader = await self._sender.open(self._request)
        async with aclosing(response):
            try:
                async for event in httpx2.EventSource(response):
                    if piece := reader.read(event):
                        yield piece
            except httpx2.RequestError as error:
                raise self._sender.connection.failure(error) from error
        self.predictions = reader.end()
