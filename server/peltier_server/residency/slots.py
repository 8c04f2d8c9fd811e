"""Which adapters are on the device: leased while in use, the least recently used out first.

A lease is a pin: what is queued or being computed is under the lease of its caller and stays. A caller that is
cancelled gives its lease back while its row may be in the batch that runs. If the adapter leaves then, the batch keeps
its memory until it ends, and nobody writes there (see `peltier_adapters.residency.bank`): until then, and by no more
than that batch, the device holds more than is counted here.
"""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from peltier_client.errors import TooLarge, Unavailable

from peltier_server import retry_hints
from peltier_server.fairness.scheduler import WeightOf
from peltier_server.metrics.metrics import Metrics
from peltier_server.residency.fetches import Fetch, Fetches, succeeded
from peltier_server.residency.host import HostCache, Sized
from peltier_server.residency.line import Line, Verdict
from peltier_server.residency.shares import Shares

Tier = Literal["device", "host", "store"]
K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)
A = TypeVar("A", bound=Sized)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Loader(Protocol[K_contra, A, R_co]):
    """Brings an adapter to the device, where its memory is free with its last reference; none of it blocks the event
    loop."""

    async def fetch(self, key: K_contra) -> A:
        """From the store, parsed and checked."""

    def device_bytes(self, artifact: A) -> int:
        """Bytes that it takes on the device."""

    async def install(self, artifact: A) -> R_co:
        """To the device."""


@dataclass(frozen=True)
class Budget:
    """Bytes of each tier, and how long a caller waits for a turn at the store, and then for room on the device."""

    device_bytes: int
    host_bytes: int
    wait_seconds: float = 10.0


@dataclass(frozen=True)
class Lease(Generic[R]):
    """The right to use an adapter on the device; `tier` is where it was found, and what bringing it here took."""

    resident: R
    tier: Tier
    load_seconds: float


class _Entry(Generic[K, A, R]):
    """One adapter that is on the device or on its way.

    It is fetched unless its artifact is known, has its size then, and is installed once it has room. `wanted` are the
    callers that lease it or wait to, `leases` those of each tenant that lease it. It is `fresh` until someone wants it,
    and `gone` once it has been dropped: who still waits for it begins again.
    """

    fetch: Fetch[K, A]

    def __init__(self, key: K, found_in: Tier) -> None:
        self.key = key
        self.found_in: Tier = found_in
        self.artifact: A | None = None
        self.fetched = False
        self.nbytes = 0
        self.installing: asyncio.Task[R] | None = None
        self.begun_at = time.monotonic()
        self.wanted = 0
        self.leases: Counter[str] = Counter()
        self.fresh = True
        self.retired = False
        self.loaded = False
        self.gone = False


@dataclass(eq=False)
class _Claim(Generic[K, A, R]):
    """A caller that waits for room; it is told False where the adapter has gone meanwhile."""

    entry: _Entry[K, A, R]
    granted: asyncio.Future[bool]


class Slots(Generic[K, A, R]):
    """The device tier over the host tier, each up to a number of bytes. Belongs to the event loop.

    What has the same key shares slots, and loads of it are one load. Nothing here takes longer the more adapters there
    are.

    **Shares.** A lease is charged to the tenant of its caller, whoever owns the adapter, with all bytes of the adapter;
    the tenant's further leases of it cost nothing more. A tenant may have at most three times what is then leased by
    nobody, so beside n tenants at that bound one part of 3 n + 1 of the device stays free of leases, less what those
    hold who use one adapter alone: everyone may always use one. Beyond its share a tenant's callers wait for leases of
    that tenant. Turns at the store are shared by the same rule, also by loads that are begun ahead.

    **The bound.** A caller within its tenant's share has room at once where leases leave enough: what is idle is
    evicted. Where they do not, tenants take turns by weight, in bytes, and nobody leases anything before the first of
    them has its room. It waits for the leases and installations that were under way when its turn came; and before its
    turn every other tenant gets at most as many bytes, by weight, as its own tenant, and one adapter. A caller whose
    turn at the store or whose room has not come within `wait_seconds` reads `Unavailable`. So a load takes at most
    twice that, 30 s of the store, and its installation; an adapter that is evicted before its caller's turn is fetched
    again within the same bounds. No caller may hold a lease while it asks for another.
    """

    def __init__(self, loader: Loader[K, A, R], budget: Budget, metrics: Metrics, weight_of: WeightOf) -> None:
        self._loader = loader
        self._budget = budget
        self._metrics = metrics
        self._host: HostCache[K, A] = HostCache(budget.host_bytes, metrics)
        self._fetches: Fetches[K, A] = Fetches(loader, weight_of)
        self._entries: dict[K, _Entry[K, A, R]] = {}
        # Those of them that are loaded and not leased, the least recently used first.
        self._idle: OrderedDict[K, _Entry[K, A, R]] = OrderedDict()
        # What is leased; `_used_bytes` also has what is idle or being installed.
        self._leased = Shares(budget.device_bytes)
        self._line: Line[_Claim[K, A, R]] = Line(weight_of)
        self._used_bytes = 0
        self._num_resident = 0

    @property
    def used_bytes(self) -> int:
        """Bytes on the device, with those that loads have reserved."""
        return self._used_bytes

    def leased_bytes(self, tenant: str) -> int:
        """Bytes of the adapters that `tenant` leases."""
        return self._leased.held(tenant)

    @asynccontextmanager
    async def lease(self, key: K, tenant: str, artifact: A | None = None) -> AsyncIterator[Lease[R]]:
        """The adapter on the device until the block ends, charged to `tenant`; `artifact` spares the store where the
        caller has it.

        Raises what the loader raises, `TooLarge` for an adapter that the whole device tier cannot hold, and
        `Unavailable` where the store does not answer in time, or the caller's turn or room does not come in time.
        """
        started = time.monotonic()
        entry = self._want(key, artifact)
        # Whoever asked for the load ahead is told where the adapter was before.
        tier: Tier = "device" if entry.loaded and not entry.fresh else entry.found_in
        entry.fresh = False
        self._metrics.cache_requests.labels(tier).inc()
        try:
            while not await self._acquire(entry, tenant):
                self._leave(entry)
                entry = self._want(key, artifact)
            try:
                resident = await self._installed(entry)
                yield Lease(resident, tier, 0.0 if tier == "device" else time.monotonic() - started)
            finally:
                self._release(entry, tenant)
        finally:
            self._leave(entry)

    def prefetch(self, key: K, tenant: str) -> None:
        """Begins to load what `tenant` will soon lease. Until then the load takes free room alone, evicts nobody, and
        goes ahead of nobody who waits."""
        if key not in self._entries:
            entry = self._begin(key, None)
            if entry.fetched:
                self._place_unasked(entry)
            else:
                self._fetches.ask(entry.fetch, tenant)

    def retire(self, key: K) -> None:
        """The adapter is deleted: leases run on, new ones find nothing, its memory is freed after the last."""
        self._host.drop(key)
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.retired = True
            self._idle.pop(key, None)
            self._settle(entry)
            self._serve()

    async def close(self) -> None:
        """Ends the loads that are under way."""
        pending = [task for entry in self._entries.values() for task in _tasks(entry) if not task.done()]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    def _want(self, key: K, artifact: A | None) -> _Entry[K, A, R]:
        entry = self._entries.get(key) or self._begin(key, artifact)
        entry.wanted += 1
        return entry

    def _leave(self, entry: _Entry[K, A, R]) -> None:
        entry.wanted -= 1
        if entry.wanted or entry.gone or entry.installing is not None:
            return
        # Everyone who wanted it has gone, so it shall neither evict others nor stand in their way.
        if entry.fetched:
            self._place_unasked(entry)
        elif not entry.fetch.begun.is_set():
            self._abandon(entry)

    def _begin(self, key: K, artifact: A | None) -> _Entry[K, A, R]:
        known = self._host.get(key) if artifact is None else artifact
        entry: _Entry[K, A, R] = _Entry(key, "store" if known is None else "host")
        entry.fetch = Fetch(key, lambda artifact: self._take(entry, artifact), lambda: self._abandon(entry))
        self._entries[key] = entry
        if known is not None:
            self._know(entry, known)
        return entry

    async def _acquire(self, entry: _Entry[K, A, R], tenant: str) -> bool:
        """Leases the adapter to `tenant` and begins to install it if it has to; False where it has gone meanwhile."""
        if not entry.fetched:
            await self._fetched(entry, tenant)
        if entry.nbytes > self._budget.device_bytes:
            raise TooLarge(
                f"the adapter has {entry.nbytes} bytes; this server keeps {self._budget.device_bytes} on the device"
            )
        if entry.gone:
            return False
        return self._lease_at_once(entry, tenant) or await self._lease_in_turn(entry, tenant)

    async def _fetched(self, entry: _Entry[K, A, R], tenant: str) -> None:
        self._fetches.ask(entry.fetch, tenant)
        if not entry.fetch.begun.is_set():
            async with self._bounded("store", lambda: self._no_turn(tenant)):
                await entry.fetch.begun.wait()
        # Others may wait for the same load, so a caller who gives up does not end it.
        await asyncio.shield(entry.fetch.task)

    def _lease_at_once(self, entry: _Entry[K, A, R], tenant: str) -> bool:
        if self._line.blocked:
            return False
        if entry.leases[tenant] == 0 and tenant in self._line:
            return False
        return self._try_lease(entry, tenant) is Verdict.GRANTED

    async def _lease_in_turn(self, entry: _Entry[K, A, R], tenant: str) -> bool:
        claim = _Claim(entry, asyncio.get_running_loop().create_future())
        self._line.put(tenant, claim)
        self._serve()
        try:
            async with self._bounded("room", lambda: self._no_room(entry, tenant)):
                return await claim.granted
        except BaseException:
            # The grant may have come in the turn of the loop in which the caller gave up.
            if claim.granted.done() and not claim.granted.cancelled() and claim.granted.result():
                self._release(entry, tenant)
            raise
        finally:
            self._line.discard(tenant, claim)
            self._serve()

    def _serve(self) -> None:
        if self._line:
            self._line.serve(self._attempt)

    def _attempt(self, tenant: str, claim: _Claim[K, A, R]) -> tuple[Verdict, int]:
        if claim.granted.done():
            return Verdict.GRANTED, 0
        if claim.entry.gone:
            claim.granted.set_result(False)
            return Verdict.GRANTED, 0
        verdict = self._try_lease(claim.entry, tenant)
        if verdict is Verdict.GRANTED:
            claim.granted.set_result(True)
        return verdict, claim.entry.nbytes

    def _try_lease(self, entry: _Entry[K, A, R], tenant: str) -> Verdict:
        if not entry.leases[tenant]:
            room = 0 if entry.leases.total() else entry.nbytes
            if not self._leased.allows(tenant, entry.nbytes, room):
                return Verdict.OVER_SHARE
            if entry.installing is None and not self._make_room(entry.nbytes):
                return Verdict.NO_ROOM
            self._leased.take(tenant, entry.nbytes, room)
        entry.leases[tenant] += 1
        self._idle.pop(entry.key, None)
        if entry.installing is None:
            self._install(entry)
        return Verdict.GRANTED

    def _release(self, entry: _Entry[K, A, R], tenant: str) -> None:
        entry.leases[tenant] -= 1
        if not entry.leases[tenant]:
            del entry.leases[tenant]
            self._leased.give_back(tenant, entry.nbytes, 0 if entry.leases else entry.nbytes)
            self._settle(entry)
            self._serve()

    def _make_room(self, nbytes: int) -> bool:
        while self._used_bytes + nbytes > self._budget.device_bytes:
            if not self._idle:
                return False
            _, victim = self._idle.popitem(last=False)
            self._metrics.evictions.labels("device").inc()
            self._drop(victim)
        return True

    def _settle(self, entry: _Entry[K, A, R]) -> None:
        """What nobody leases may be evicted, or goes at once if it is deleted."""
        if entry.leases or entry.gone or not entry.loaded:
            return
        if entry.retired:
            self._drop(entry)
        else:
            self._idle[entry.key] = entry

    def _place_unasked(self, entry: _Entry[K, A, R]) -> None:
        """Nobody waits for it, so it takes what room is free, or waits in the host tier."""
        if self._line or entry.retired or self._used_bytes + entry.nbytes > self._budget.device_bytes:
            self._abandon(entry)
        else:
            self._install(entry)

    def _install(self, entry: _Entry[K, A, R]) -> None:
        artifact, entry.artifact = entry.artifact, None
        assert artifact is not None, "what is installed has been fetched, and only once"
        self._used_bytes += entry.nbytes
        entry.installing = asyncio.create_task(self._loader.install(artifact))
        entry.installing.add_done_callback(lambda task: self._after_install(entry, succeeded(task)))
        self._fetches.finish(entry.fetch)

    async def _installed(self, entry: _Entry[K, A, R]) -> R:
        assert entry.installing is not None, "what is leased has room"
        return await asyncio.shield(entry.installing)

    def _take(self, entry: _Entry[K, A, R], artifact: A) -> None:
        """The store's answer."""
        self._know(entry, artifact)
        if not entry.wanted:
            self._place_unasked(entry)

    def _know(self, entry: _Entry[K, A, R], artifact: A) -> None:
        entry.fetched, entry.artifact, entry.nbytes = True, artifact, self._loader.device_bytes(artifact)
        if not entry.retired:
            self._host.put(entry.key, artifact)

    def _after_install(self, entry: _Entry[K, A, R], succeeded: bool) -> None:
        if succeeded:
            entry.loaded = True
            self._num_resident += 1
            self._metrics.loads.inc()
            self._metrics.load_seconds.labels(entry.found_in).observe(time.monotonic() - entry.begun_at)
            self._settle(entry)
        else:
            self._used_bytes -= entry.nbytes
            self._abandon(entry)
        self._report()
        self._serve()

    def _drop(self, entry: _Entry[K, A, R]) -> None:
        self._used_bytes -= entry.nbytes
        self._num_resident -= 1
        # Those that wait for it may still name the entry, and nothing that names the entry shall name the adapter.
        entry.installing = None
        self._abandon(entry)
        self._report()

    def _abandon(self, entry: _Entry[K, A, R]) -> None:
        entry.gone = True
        entry.artifact = None
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
        self._fetches.withdraw(entry.fetch)

    @asynccontextmanager
    async def _bounded(self, wanted: str, reason: Callable[[], str]) -> AsyncIterator[None]:
        started = time.monotonic()
        clock = asyncio.timeout(self._budget.wait_seconds)
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

    def _no_turn(self, tenant: str) -> str:
        return (
            f"the adapter's turn at the store did not come within {self._budget.wait_seconds:g} s: "
            f"{self._fetches.describe(tenant)}"
        )

    def _no_room(self, entry: _Entry[K, A, R], tenant: str) -> str:
        leased = self._leased
        return (
            f"the adapter's {entry.nbytes} bytes found no room on the device within {self._budget.wait_seconds:g} s: "
            f"tenant {tenant!r} uses {leased.held(tenant)} bytes, all tenants use {leased.taken} of {leased.capacity}, "
            f"and one tenant may have at most 3 times what it leaves"
        )

    def _report(self) -> None:
        self._metrics.adapters.labels("device").set(self._num_resident)
        self._metrics.adapter_bytes.labels("device").set(self._used_bytes)


def _tasks(entry: _Entry[K, A, R]) -> list[asyncio.Task[Any]]:
    fetching = [entry.fetch.task] if entry.fetch.begun.is_set() else []
    return [*fetching, *([] if entry.installing is None else [entry.installing])]
