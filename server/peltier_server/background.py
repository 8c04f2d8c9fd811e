"""Work that a component does beside the requests."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from peltier_adapters.errors import AdapterError

from peltier_server.errors import STORE_GONE

logger = logging.getLogger(__name__)

# After a turn that found nothing.
_PAUSE_SECONDS = 0.25


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


class QueueTask:
    """Takes turns at a queue in the registry until one finds nothing: after changes of the registry (`wake`), and
    after `idle_seconds` without one, because the lease of a replica that died ends without a change. Most changes are
    of other things, such as uploads, so a quarter of a second passes after a turn that found nothing. Failures are
    logged as `failure`, and the next turn follows as if nothing had been found. Belongs to the event loop."""

    def __init__(self, take_turn: Callable[[], Awaitable[bool]], failure: str, idle_seconds: float) -> None:
        self._take_turn = take_turn
        self._failure = failure
        self._idle_seconds = idle_seconds
        self._changed = asyncio.Event()
        self._task = BackgroundTask()

    def start(self) -> None:
        """Begins with a turn at once."""
        self._task.start(self._run())

    async def close(self) -> None:
        """Cancels the turn in progress."""
        await self._task.close()

    def wake(self) -> None:
        """The registry has changed."""
        self._changed.set()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                while await self._take_turn():
                    pass
            except STORE_GONE:
                pass  # `StoreWatch` logs it
            except AdapterError as error:
                logger.warning("%s: %s", self._failure, error)
            except Exception:
                # Nothing else would notice if this task ended.
                logger.exception("%s", self._failure)
            await asyncio.sleep(_PAUSE_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._idle_seconds):
                    await self._changed.wait()
