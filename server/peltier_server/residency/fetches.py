"""Bounded fetches from the store."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from peltier_adapters.artifact.artifact import Artifact
from peltier_client.errors import Unavailable

from peltier_server import retry_hints
from peltier_server.fairness.shared_bound import Shares
from peltier_server.residency.leases import SlotEntry
from peltier_server.residency.loader import StoreLoader
from peltier_server.residency.turns import Turns, Verdict

logger = logging.getLogger(__name__)

# Bounds for a store that is slow or hangs.
_MAX_FETCHES = 16
_FETCH_SECONDS = 30.0


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
