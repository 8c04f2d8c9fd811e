"""Calls that wait for the test, before they begin or before they return."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


class Gate:
    """Takes the place of an async method: each call of that waits until the gate is open, before it begins or, with
    `after`, before its result is handed on. `num_calls` have come so far.
    """

    def __init__(self, call: Callable[..., Awaitable[Any]], *, after: bool = False) -> None:
        self.opened = asyncio.Event()
        self._reached = asyncio.Event()
        self.num_calls = 0
        self._call = call
        self._after = after

    async def __call__(self, *given: Any, **options: Any) -> Any:
        self.num_calls += 1
        if not self._after:
            await self._pass()
        result = await self._call(*given, **options)
        if self._after:
            await self._pass()
        return result

    async def reached(self) -> None:
        async with asyncio.timeout(60):
            await self._reached.wait()

    async def _pass(self) -> None:
        self._reached.set()
        await self.opened.wait()
