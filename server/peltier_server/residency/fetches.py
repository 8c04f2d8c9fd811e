"""Fetches of artifacts from the store: a maximum number at a time, shared between tenants."""

import asyncio
import logging
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

from peltier_client.errors import Unavailable

from peltier_server import retry_hints
from peltier_server.fairness.scheduler import WeightOf
from peltier_server.fairness.shared_bound import Shares
from peltier_server.residency.line import Verdict, WaitingLine

logger = logging.getLogger(__name__)

# Bounds for a store that is slow or hangs.
_MAX_FETCHES = 16
_FETCH_SECONDS = 30.0

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)
A = TypeVar("A")
R_co = TypeVar("R_co", covariant=True)


class Fetcher(Protocol[K_contra, A]):
    """Reads artifacts from the store."""

    async def fetch(self, key: K_contra) -> A:
        """Reads the artifact from the store, parsed and checked."""

    async def prove(self, artifact: A, tenant: str) -> None:
        """Raises an error for an artifact that must not answer on this server; `tenant` is charged for the check."""


class AdapterLoader(Fetcher[K_contra, A], Protocol[K_contra, A, R_co]):
    """Loads adapters to the device, without blocking the event loop. Their memory is freed with the last reference."""

    def device_bytes(self, artifact: A) -> int:
        """The bytes that the artifact takes on the device."""

    async def install(self, artifact: A) -> R_co:
        """Copies the artifact to the device."""


class Fetch(Generic[K, A]):
    """One fetch. `begun` is set when the request to the store begins. When `task` has ended, `take` was called with the
    artifact, or `fail`."""

    def __init__(self, key: K, take: Callable[[A], None], fail: Callable[[], None]) -> None:
        self.key = key
        self.take = take
        self.fail = fail
        self.begun = asyncio.Event()
        self.task: asyncio.Task[None]
        self.tenants: set[str] = set()
        self.charged_to: str | None = None


class Fetches(Generic[K, A]):
    """Fetches in progress, shared between tenants by `Shares` and `WaitingLine`. Belongs to the event loop.

    A fetch counts until `finish`, which bounds the fetched artifacts in memory. A fetch that several tenants want waits
    in the line of each, and begins at the first turn of any of them.
    """

    def __init__(self, loader: Fetcher[K, A], weight_of: WeightOf) -> None:
        self._loader = loader
        self._shares = Shares(_MAX_FETCHES)
        self._line: WaitingLine[Fetch[K, A]] = WaitingLine(weight_of)

    def ask(self, fetch: Fetch[K, A], tenant: str) -> None:
        """Lets the fetch wait in the line of `tenant`."""
        if not fetch.begun.is_set() and tenant not in fetch.tenants:
            fetch.tenants.add(tenant)
            self._line.put(tenant, fetch)
            self._line.serve(self._attempt)

    def withdraw(self, fetch: Fetch[K, A]) -> None:
        """Removes a fetch that nobody wants any more from all lines."""
        for tenant in fetch.tenants:
            self._line.discard(tenant, fetch)
        self.finish(fetch)

    def finish(self, fetch: Fetch[K, A]) -> None:
        """Ends a fetch, if it has begun; the next one begins."""
        if fetch.charged_to is not None:
            self._shares.give_back(fetch.charged_to, 1, 1)
            fetch.charged_to = None
        self._line.serve(self._attempt)

    def describe(self, tenant: str) -> str:
        """The fetches in progress, as a clause of a message for `tenant`."""
        shares = self._shares
        return (
            f"{shares.held(tenant)} loads of tenant {tenant!r} are in progress, "
            f"and {shares.taken} of all tenants, of at most {shares.capacity}"
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
        fetch.task = asyncio.create_task(self._fetch(fetch, tenant))
        fetch.task.add_done_callback(lambda task: None if succeeded(task) else fetch.fail())
        fetch.begun.set()
        return Verdict.GRANTED, 1

    async def _fetch(self, fetch: Fetch[K, A], tenant: str) -> None:
        clock = asyncio.timeout(_FETCH_SECONDS)
        try:
            async with clock:
                artifact = await self._loader.fetch(fetch.key)
        except TimeoutError:
            if not clock.expired():
                raise
            logger.error("the store has not answered within %g s", _FETCH_SECONDS, extra={"outage": "blob store"})
            raise Unavailable("the store does not answer", retry_after=retry_hints.SOON) from None
        await self._loader.prove(artifact, tenant)
        # Not the result of the task, because that would keep it in memory as long as the task.
        fetch.take(artifact)


def succeeded(task: asyncio.Task[Any]) -> bool:
    """Whether the task has ended, without an error or a cancellation."""
    return task.done() and not task.cancelled() and task.exception() is None
