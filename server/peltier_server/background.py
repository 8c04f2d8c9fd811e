"""Work that a component does beside the requests."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTask:
    """One coroutine from `start` to `close`. Belongs to the event loop."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work`. Nothing else notices if it ends with an exception."""
        self._task = asyncio.create_task(work)

    async def close(self) -> bool:
        """Cancels the work and waits for its end. Returns whether it was started."""
        if self._task is None:
            return False
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return True
