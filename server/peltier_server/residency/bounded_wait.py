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
    async def bounded(self, wanted: str, failure: str, describe: Callable[[], str]) -> AsyncIterator[None]:
        """A block that waits for what is `wanted`. If it takes too long, raises `Unavailable` that names the `failure`
        and the state that `describe` returns then."""
        started = time.monotonic()
        clock = asyncio.timeout(self._seconds)
        try:
            async with clock:
                yield
        except TimeoutError:
            if not clock.expired():
                raise
            self._metrics.adapter_refusals.labels(wanted).inc()
            reason = f"{failure} within {self._seconds:g} s: {describe()}"
            raise Unavailable(reason, retry_after=retry_hints.SOON) from None
        finally:
            self._metrics.adapter_wait_seconds.labels(wanted).observe(time.monotonic() - started)
