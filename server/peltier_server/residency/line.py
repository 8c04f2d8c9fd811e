"""Callers that wait: in a line for each tenant, served by weight, and for at most a bounded time."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from enum import Enum
from typing import Generic, TypeVar

from peltier_client.errors import Unavailable

from peltier_server import retry_hints
from peltier_server.fairness.scheduler import WeightOf
from peltier_server.metrics.metrics import Metrics

# Virtual time is counted in integer steps, as in `peltier_server.fairness.scheduler`.
_STEPS = 10**9

T = TypeVar("T", bound=Hashable)


class Verdict(Enum):
    """The result of an item's turn."""

    GRANTED = "granted"
    # Its tenant is at the bound of its share; the other tenants have their turn.
    OVER_SHARE = "over share"
    # There is no room; the item gets the next room before any other.
    NO_ROOM = "no room"


class WaitingLine(Generic[T]):
    """A first-in, first-out line for each tenant. The next tenant is the one that was granted least relative to its
    weight. A tenant that begins to wait is level with the least served waiting tenant. Belongs to the event loop."""

    def __init__(self, weight_of: WeightOf) -> None:
        self._weight_of = weight_of
        # The items by tenant, for tenants that wait. A plain attribute, because every lease looks at it.
        self.waiting: dict[str, OrderedDict[T, None]] = {}
        self._tags: dict[str, int] = {}
        # Whether an item waits for room.
        self.blocked = False

    def put(self, tenant: str, item: T) -> None:
        """Adds `item` at the end of its tenant's line, unless it is in the line."""
        if tenant not in self.waiting:
            now = min((self._tags[other] for other in self.waiting), default=0)
            self.waiting[tenant] = OrderedDict()
            self._tags[tenant] = max(now, self._tags.get(tenant, 0))
        self.waiting[tenant].setdefault(item)

    def discard(self, tenant: str, item: T) -> None:
        """Removes `item`, if it is in the line."""
        items = self.waiting.get(tenant)
        if items is None:
            return
        items.pop(item, None)
        if not items:
            self._end(tenant)

    def serve(self, attempt: Callable[[str, T], tuple[Verdict, int]]) -> None:
        """Calls `attempt` with each tenant's first item in turn, until no item can be granted. `attempt` returns the
        verdict and the cost of a grant."""
        while self._serve_one(attempt):
            pass

    def _serve_one(self, attempt: Callable[[str, T], tuple[Verdict, int]]) -> bool:
        self.blocked = False
        for tenant in sorted(self.waiting, key=self._tags.__getitem__):
            item = next(iter(self.waiting[tenant]))
            verdict, cost = attempt(tenant, item)
            if verdict is Verdict.GRANTED:
                self._tags[tenant] += cost * round(_STEPS / self._weight_of(tenant))
                self.discard(tenant, item)
                return True
            if verdict is Verdict.NO_ROOM:
                self.blocked = True
                return False
        return False

    def _end(self, tenant: str) -> None:
        del self.waiting[tenant]
        if not self.waiting:
            self._tags.clear()
            self.blocked = False
            return
        now = min(self._tags[other] for other in self.waiting)
        # A tenant that left ahead of the others is ahead of them when it returns. Other tags are not needed.
        if len(self._tags) > 2 * len(self.waiting):
            self._tags = {other: tag for other, tag in self._tags.items() if other in self.waiting or tag > now}


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
