"""Lines of tenants that wait in turn, and the bounded fetches from the store, which wait in such lines."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from peltier_adapters.artifact.artifact import Artifact
from peltier_client.errors import Unavailable

from peltier_server import retry_hints
from peltier_server.fairness.shared_bound import Shares
from peltier_server.residency.loader import StoreLoader
from peltier_server.residency.tiers import SlotEntry, Verdict

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Hashable)

# Bounds for a store that is slow or hangs.
_MAX_FETCHES = 16
_FETCH_SECONDS = 30.0


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


class Fetches:
    """Fetches in progress, shared between tenants by `Shares` and `Turns`. Calls `take` with each artifact, or `fail`.
    Belongs to the event loop.

    A fetch counts until `finish`, which bounds the fetched artifacts in memory. Without shares those of a tenant that
    waits for its own leases to end would keep every other tenant from the store. A fetch that several tenants want
    waits in the line of each, and begins at the first turn of any of them.
    """

    def __init__(
        self, loader: StoreLoader, take: Callable[[SlotEntry, Artifact], None], fail: Callable[[SlotEntry], None]
    ) -> None:
        self._loader, self._take, self._fail = loader, take, fail
        self._shares = Shares(_MAX_FETCHES)
        self._turns = Turns[SlotEntry]()

    def ask(self, entry: SlotEntry, tenant: str) -> None:
        """Lets the fetch of `entry` wait in the line of `tenant`, unless it has begun."""
        if not entry.begun.is_set():
            entry.askers.add(tenant)
            self._turns.put(tenant, entry)
            self._turns.serve(self._attempt)

    def withdraw(self, entry: SlotEntry) -> None:
        """Removes a fetch that nobody wants any more from all lines."""
        self._leave_lines(entry)
        self.finish(entry)

    def finish(self, entry: SlotEntry) -> None:
        """Ends a fetch, if it has begun; the next one begins."""
        if entry.charged_to is not None:
            self._shares.give_back(entry.charged_to, 1, 1)
            entry.charged_to = None
        self._turns.serve(self._attempt)

    def describe(self, tenant: str) -> str:
        """The fetches in progress, as a clause of a message for `tenant`."""
        shares = self._shares
        return (
            f"{shares.held(tenant)} loads of tenant {tenant!r} are in progress, "
            f"and {shares.taken} of all tenants, of at most {shares.capacity}"
        )

    def _leave_lines(self, entry: SlotEntry) -> None:
        for tenant in entry.askers:
            self._turns.discard(tenant, entry)
        entry.askers.clear()

    def _attempt(self, tenant: str, entry: SlotEntry) -> Verdict:
        if not self._shares.allows(tenant, 1, 1):
            return Verdict.OVER_SHARE
        if self._shares.rest(1) < 0:
            return Verdict.NO_ROOM
        self._shares.take(tenant, 1, 1)
        entry.charged_to = tenant
        entry.askers.discard(tenant)
        self._leave_lines(entry)
        entry.fetching = asyncio.create_task(self._fetch(entry, tenant))
        entry.fetching.add_done_callback(lambda task: None if succeeded(task) else self._fail(entry))
        entry.begun.set()
        return Verdict.GRANTED

    async def _fetch(self, entry: SlotEntry, tenant: str) -> None:
        clock = asyncio.timeout(_FETCH_SECONDS)
        try:
            async with clock:
                artifact = await self._loader.fetch(entry.key)
        except TimeoutError:
            if not clock.expired():
                raise
            logger.error("the store has not answered within %g s", _FETCH_SECONDS, extra={"outage": "blob store"})
            raise Unavailable("the store does not answer", retry_after=retry_hints.SOON) from None
        await self._loader.prove(artifact, tenant)
        # Not the result of the task, because that would keep it in memory as long as the task.
        self._take(entry, artifact)


def succeeded(task: asyncio.Task[Any]) -> bool:
    """Whether the task has ended, without an error or a cancellation."""
    return task.done() and not task.cancelled() and task.exception() is None
