"""Callers that wait: in a line for each tenant, the tenants in turn, and for at most a bounded time."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from enum import Enum
from typing import Generic, TypeVar

from peltier_client.errors import Unavailable

from peltier_server import retry_hints
from peltier_server.metrics.metrics import Metrics

T = TypeVar("T", bound=Hashable)


class Verdict(Enum):
    """The result of an item's turn."""

    GRANTED = "granted"
    # Its tenant is at the bound of its share; the other tenants have their turn.
    OVER_SHARE = "over share"
    # There is no room; the item gets the next room before any other.
    NO_ROOM = "no room"


class Turns(Generic[T]):
    """A first-in, first-out line for each tenant. The tenants take turns: one whose item is granted goes behind the
    others that wait. Belongs to the event loop."""

    def __init__(self) -> None:
        # The items by tenant, for tenants that wait, the next one first. A plain attribute, because every lease looks
        # at it.
        self.waiting: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()
        # Whether an item waits for room.
        self.blocked = False

    def put(self, tenant: str, item: T) -> None:
        """Adds `item` at the end of its tenant's line, unless it is in the line."""
        self.waiting.setdefault(tenant, OrderedDict()).setdefault(item)

    def discard(self, tenant: str, item: T) -> None:
        """Removes `item`, if it is in the line."""
        items = self.waiting.get(tenant, OrderedDict())
        items.pop(item, None)
        if not items:
            self.waiting.pop(tenant, None)
        self.blocked &= bool(self.waiting)

    def serve(self, attempt: Callable[[str, T], Verdict]) -> None:
        """Calls `attempt` with each tenant's first item in turn, until no item can be granted."""
        while self._serve_one(attempt):
            pass

    def _serve_one(self, attempt: Callable[[str, T], Verdict]) -> bool:
        self.blocked = False
        for tenant, items in self.waiting.items():
            item = next(iter(items))
            verdict = attempt(tenant, item)
            if verdict is Verdict.GRANTED:
                self.waiting.move_to_end(tenant)
                self.discard(tenant, item)
                return True
            if verdict is Verdict.NO_ROOM:
                self.blocked = True
                return False
        return False


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
