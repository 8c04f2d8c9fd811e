"""Waits that end with an error after a time."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from peltier_client.errors import Unavailable

from peltier_server import retry_hints
from peltier_server.metrics.metrics import Metrics


class BoundedWait:
    """Blocks that wait for at most `seconds`, and are measured."""

    def __init__(self, seconds: float, metrics: Metrics) -> None:
        self._seconds, self._metrics = seconds, metrics

    @asynccontextmanager
    async def bounded(self, wanted: str, reason: Callable[[], str]) -> AsyncIterator[None]:
        """A block that waits for what is `wanted`. Raises `Unavailable` with the `reason` if it takes too long."""
        started = time.monotonic()
        clock = asyncio.timeout(self._seconds)
        try:
            async with clock:
                yield
        except TimeoutError:
            if not clock.expired():
                raise
            self._metrics.adapter_refusals.labels(wanted).inc()
            raise Unavailable(reason(), retry_after=retry_hints.SOON) from None
        finally:
            self._metrics.adapter_wait_seconds.labels(wanted).observe(time.monotonic() - started)
