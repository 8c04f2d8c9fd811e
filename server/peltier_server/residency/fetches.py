"""Artifacts on their way from the store: so many at once, and of those a share for each tenant."""

import asyncio
import logging
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

from peltier_client.errors import Unavailable

from peltier_server import retry_hints
from peltier_server.fairness.scheduler import WeightOf
from peltier_server.residency.line import Line, Verdict
from peltier_server.residency.shares import Shares

logger = logging.getLogger(__name__)

# A store that answers slowly is asked for this many adapters at once; one that hangs holds nobody up for longer.
_MAX_FETCHES = 16
_FETCH_SECONDS = 30.0

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class Fetcher(Protocol[K_contra, A_co]):
    """Who asks the store."""

    async def fetch(self, key: K_contra) -> A_co:
        """From the store, parsed and checked."""


class Fetch(Generic[K, A]):
    """One artifact that is to come. `begun` is set once the store has been asked. `task` ends with its answer: `take`
    has then been called with the artifact, or `fail`."""

    def __init__(self, key: K, take: Callable[[A], None], fail: Callable[[], None]) -> None:
        self.key = key
        self.take = take
        self.fail = fail
        self.begun = asyncio.Event()
        self.task: asyncio.Task[None]
        self.tenants: set[str] = set()
        self.charged_to: str | None = None


class Fetches(Generic[K, A]):
    """Turns at the store, shared between tenants as `Shares` and `Line` say. Belongs to the event loop.

    A turn lasts until `finish`, so that there are never more artifacts in memory than turns. A fetch that several
    tenants ask for waits in the line of each, and the first turn of any of them is its own.
    """

    def __init__(self, loader: Fetcher[K, A], weight_of: WeightOf) -> None:
        self._loader = loader
        self._shares = Shares(_MAX_FETCHES)
        self._line: Line[Fetch[K, A]] = Line(weight_of)

    def ask(self, fetch: Fetch[K, A], tenant: str) -> None:
        """`tenant` wants it, too."""
        if not fetch.begun.is_set() and tenant not in fetch.tenants:
            fetch.tenants.add(tenant)
            self._line.put(tenant, fetch)
            self._line.serve(self._attempt)

    def withdraw(self, fetch: Fetch[K, A]) -> None:
        """Nobody wants it any more, so that it no longer waits for a turn."""
        for tenant in fetch.tenants:
            self._line.discard(tenant, fetch)
        self.finish(fetch)

    def finish(self, fetch: Fetch[K, A]) -> None:
        """Ends its turn, if it has one; the next begins."""
        if fetch.charged_to is not None:
            self._shares.give_back(fetch.charged_to, 1, 1)
            fetch.charged_to = None
        self._line.serve(self._attempt)

    def describe(self, tenant: str) -> str:
        """How many turns are taken, for the tenant that waits for one."""
        shares = self._shares
        return (
            f"{shares.held(tenant)} adapters of tenant {tenant!r} are on their way, "
            f"of all tenants {shares.taken} of at most {shares.capacity}"
        )

    def _attempt(self, tenant: str, fetch: Fetch[K, A]) -> tuple[Verdict, int]:
        if fetch.begun.is_set():
            return Verdict.GRANTED, 0
        if not self._shares.allows(tenant, 1, 1):
            return Verdict.OVER_SHARE, 0
        if self._shares.rest(1) < 0:
            return Verdict.NO_ROOM, 0
        self._shares.take(tenant, 1, 1)
        fetch.charged_to = tenant
        fetch.task = asyncio.create_task(self._fetch(fetch))
        fetch.task.add_done_callback(lambda task: None if succeeded(task) else fetch.fail())
        fetch.begun.set()
        return Verdict.GRANTED, 1

    async def _fetch(self, fetch: Fetch[K, A]) -> None:
        clock = asyncio.timeout(_FETCH_SECONDS)
        try:
            async with clock:
                artifact = await self._loader.fetch(fetch.key)
        except TimeoutError:
            if not clock.expired():
                raise
            logger.error("the store has not answered within %g s", _FETCH_SECONDS)
            raise Unavailable("the store does not answer just now", retry_after=retry_hints.SOON) from None
        # It is not the task's result, which would keep it in memory as long as anybody names the task.
        fetch.take(artifact)


def succeeded(task: asyncio.Task[Any]) -> bool:
    """It has ended, and neither failed nor was cancelled."""
    return task.done() and not task.cancelled() and task.exception() is None
