"""The adapters in memory: leases of those on the device, and loads from the host and the store."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.residency.bank import Resident
from peltier_client.errors import TooLarge, Unavailable
from peltier_client.protocol.predict import Tier

from peltier_server import retry_hints
from peltier_server.context import AdapterKey
from peltier_server.metrics.metrics import Metrics
from peltier_server.residency.fetches import Fetches, Turns, succeeded
from peltier_server.residency.loader import StoreLoader
from peltier_server.residency.tiers import DeviceTier, HostCache, Lease, MemoryBudget, SlotClaim, SlotEntry, Verdict


class Leasing:
    """A block that leases an adapter. A generator as a context manager takes four times as long."""

    __slots__ = ("_asked", "_entry", "_slots")

    def __init__(self, slots: "Slots", key: AdapterKey, tenant: str, artifact: Artifact | None) -> None:
        self._slots = slots
        self._asked = key, tenant, artifact
        self._entry: SlotEntry

    async def __aenter__(self) -> Lease:
        self._entry, lease = await self._slots.begin_lease(*self._asked)
        return lease

    async def __aexit__(self, *_: object) -> None:
        self._slots.end_lease(self._entry, self._asked[1])


class Slots:
    """The tier `device` over the host tier, each with a maximum of bytes. Belongs to the event loop.

    All callers of a key share its slot and its load. No operation takes longer with more adapters.

    **Shares.** `DeviceTier` bounds the bytes that a tenant may lease. The callers of a tenant at its bound wait until
    that tenant releases leases. Loads from the store are shared by the same rule, also prefetches.

    **The bound.** If the leases leave enough room, a caller within its tenant's share gets room at once: idle adapters
    are evicted. Otherwise tenants take turns, one adapter each, and no caller gets a lease before the first tenant in
    turn has its room. That tenant waits for the leases and installations that were in progress when its turn came.
    Loads from the store take turns in the same way. A caller gets `Unavailable` if its load does not begin, or if it
    gets no room, within `wait_seconds`. So a lease takes at most twice that, 30 s for the store, and the installation.
    An adapter that is evicted before its caller's turn is fetched again within the same bounds. No caller may hold a
    lease while it asks for another.

    **Pins.** `pin` loads an adapter as a lease does, and keeps it on the device until `unpin` or `retire`. The shares
    and the bound hold for the rest of the device.
    """

    def __init__(self, loader: StoreLoader, budget: MemoryBudget, metrics: Metrics) -> None:
        self._loader = loader
        self._metrics = metrics
        self._wait_seconds = budget.wait_seconds
        self._host = HostCache(budget.host_bytes, metrics)
        self._fetches = Fetches(loader, self._take, self._fail)
        self._entries: dict[AdapterKey, SlotEntry] = {}
        self._loading: dict[SlotEntry, None] = {}
        self.device = DeviceTier(budget.device_bytes, metrics, self._drop)
        self._turns = Turns[SlotClaim]()

    @property
    def num_loading(self) -> int:
        """How many adapters are fetched, wait for room or are installed."""
        return len(self._loading)

    def loading(self) -> Iterator[AdapterKey]:
        """The adapters that are fetched, wait for room or are installed, in the order in which they were wanted."""
        return (entry.key for entry in self._loading)

    def lease(self, key: AdapterKey, tenant: str, artifact: Artifact | None = None) -> Leasing:
        """Keeps the adapter on the device until the block ends, charged to `tenant`. A caller that has the `artifact`
        gives it, which saves the fetch from the store.

        Raises what the loader raises, `TooLarge` for an adapter that is larger than the device tier, and `Unavailable`
        if the store does not answer in time, or if the load does not begin or gets no room in time.
        """
        return Leasing(self, key, tenant, artifact)

    async def begin_lease(self, key: AdapterKey, tenant: str, artifact: Artifact | None) -> tuple[SlotEntry, Lease]:
        """The lease of the block that `lease` enters, and the adapter's entry. `end_lease` ends it."""
        started = time.monotonic()
        entry = self._want(key, artifact)
        # The caller of a prefetched adapter learns where the adapter was before.
        tier: Tier = "device" if entry.loaded and not entry.fresh else entry.found_in
        self._metrics.cache_requests_of(tier).inc()
        entry, resident = await self._hold(entry, tenant, artifact)
        if tier == "device":
            return entry, Lease(resident, tier, 0.0)
        load_seconds = time.monotonic() - started
        if artifact is None:
            # Else it is an upload.
            self._metrics.cold_start_seconds.labels(tier).observe(load_seconds)
        return entry, Lease(resident, tier, load_seconds)

    def end_lease(self, entry: SlotEntry, tenant: str) -> None:
        """Ends a lease of `tenant`."""
        try:
            self._release(entry, tenant)
        finally:
            self._leave(entry)

    def prefetch(self, key: AdapterKey, tenant: str) -> None:
        """Begins to load an adapter that `tenant` will lease soon. The load uses only free room, evicts nothing, and
        does not overtake waiting callers."""
        if key not in self._entries:
            entry = self._begin(key, None)
            if entry.fetched:
                self._place_unwanted(entry)
            else:
                self._fetches.ask(entry, tenant)

    async def warm(self, key: AdapterKey, tenant: str) -> None:
        """Loads an adapter to the device, charged to `tenant` meanwhile. Raises what `lease` raises."""
        entry, _ = await self._hold(self._want(key, None), tenant, None)
        self.end_lease(entry, tenant)

    async def pin(self, key: AdapterKey, tenant: str) -> None:
        """Loads an adapter to the device, if it is not there, and keeps it there until `unpin` or `retire`.

        Raises what `lease` raises, and `StorageFull` if it does not fit beside the other pins.
        """
        entry, _ = await self._hold(self._want(key, None), tenant, None)
        try:
            if not entry.retired:
                self.device.pin(entry)
        finally:
            self.end_lease(entry, tenant)
            self._serve()

    def unpin(self, key: AdapterKey) -> None:
        """Ends a pin, if there is one. The adapter stays in memory until it is evicted."""
        if (entry := self._entries.get(key)) is not None:
            self.device.unpin(entry)
            self._settle(entry)
            self._serve()

    def retire(self, key: AdapterKey) -> None:
        """The adapter is deleted: its leases continue, but there are no new ones, and its pin ends. The last lease
        frees its memory."""
        self._host.drop(key)
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.device.unpin(entry)
            entry.retired = True
            self._settle(entry)
            self._serve()

    async def close(self) -> None:
        """Cancels the loads in progress."""
        pending = [task for entry in self._entries.values() for task in entry.tasks if not task.done()]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def _hold(self, entry: SlotEntry, tenant: str, artifact: Artifact | None) -> tuple[SlotEntry, Resident]:
        """Leases an adapter that this caller wants, and waits until it is loaded. Returns its entry, which is another
        one if the adapter was dropped meanwhile."""
        key, entry.fresh = entry.key, False
        try:
            while not await self._acquire(entry, tenant):
                self._leave(entry)
                entry = self._want(key, artifact)
        except BaseException:
            self._leave(entry)
            raise
        try:
            return entry, await self._installed(entry)
        except BaseException:
            self.end_lease(entry, tenant)
            raise

    def _want(self, key: AdapterKey, artifact: Artifact | None) -> SlotEntry:
        entry = self._entries.get(key) or self._begin(key, artifact)
        entry.wanted += 1
        return entry

    def _leave(self, entry: SlotEntry) -> None:
        entry.wanted -= 1
        if entry.wanted or entry.gone or entry.installing is not None:
            return
        # Nobody wants it any more, so it must neither evict other adapters nor delay other callers.
        if entry.fetched:
            self._place_unwanted(entry)
        elif not entry.begun.is_set():
            self._abandon(entry)

    def _begin(self, key: AdapterKey, artifact: Artifact | None) -> SlotEntry:
        known = self._host.get(key) if artifact is None else artifact
        entry = SlotEntry(key, "store" if known is None else "host")
        self._entries[key] = entry
        self._loading[entry] = None
        if known is not None:
            self._know(entry, known)
        return entry

    async def _acquire(self, entry: SlotEntry, tenant: str) -> bool:
        """Leases the adapter to `tenant`, and begins to install it if needed; False if it was dropped meanwhile."""
        if not entry.fetched:
            await self._fetched(entry, tenant)
        self._require_fit(entry)
        if entry.gone:
            return False
        return self._lease_at_once(entry, tenant) or await self._lease_in_turn(entry, tenant)

    def _require_fit(self, entry: SlotEntry) -> None:
        """Raises `TooLarge` if the device has no room for the adapter beside pins, even without leases."""
        if not entry.is_pinned and entry.nbytes > self.device.unpinned_bytes:
            beside = " beside pinned adapters" if self.device.unpinned_bytes < self.device.max_bytes else ""
            raise TooLarge(
                f"the adapter has {entry.nbytes} bytes; this server keeps {self.device.unpinned_bytes} on the device"
                f"{beside}"
            )

    async def _fetched(self, entry: SlotEntry, tenant: str) -> None:
        self._fetches.ask(entry, tenant)
        if not entry.begun.is_set():
            failure = "the adapter's turn at the store did not come"
            async with self._waiting("store", failure, lambda: self._fetches.describe(tenant)):
                await entry.begun.wait()
        # Others may wait for the same load, so a cancelled caller does not cancel it.
        await asyncio.shield(entry.fetching)

    def _lease_at_once(self, entry: SlotEntry, tenant: str) -> bool:
        if entry.is_pinned:
            # It takes no room, so it need not wait for those who wait for room.
            return self._try_lease(entry, tenant) is Verdict.GRANTED
        if self._turns.blocked:
            return False
        if entry.leases[tenant] == 0 and tenant in self._turns.waiting:
            return False
        return self._try_lease(entry, tenant) is Verdict.GRANTED

    async def _lease_in_turn(self, entry: SlotEntry, tenant: str) -> bool:
        claim = SlotClaim(entry, asyncio.get_running_loop().create_future())
        self._turns.put(tenant, claim)
        self._serve()
        failure = f"the adapter's {entry.nbytes} bytes found no room on the device"
        try:
            async with self._waiting("room", failure, lambda: self.device.describe(tenant)):
                return await claim.granted
        except BaseException:
            # The lease may have been granted in the iteration of the loop in which the caller was cancelled.
            if _is_granted(claim.granted):
                self._release(entry, tenant)
            raise
        finally:
            self._turns.discard(tenant, claim)
            self._serve()

    @asynccontextmanager
    async def _waiting(self, wanted: str, failure: str, describe: Callable[[], str]) -> AsyncIterator[None]:
        """A block that waits for what is `wanted`. If it takes too long, raises `Unavailable` that names the `failure`
        and the state that `describe` returns then."""
        started = time.monotonic()
        clock = asyncio.timeout(self._wait_seconds)
        try:
            async with clock:
                yield
        except TimeoutError:
            if not clock.expired():
                raise
            self._metrics.adapter_refusals.labels(wanted).inc()
            reason = f"{failure} within {self._wait_seconds:g} s: {describe()}"
            raise Unavailable(reason, retry_after=retry_hints.SOON) from None
        finally:
            self._metrics.adapter_wait_seconds.labels(wanted).observe(time.monotonic() - started)

    def _serve(self) -> None:
        if self._turns.waiting:
            self._turns.serve(self._attempt)

    def _attempt(self, tenant: str, claim: SlotClaim) -> Verdict:
        if claim.granted.done():
            return Verdict.GRANTED
        if claim.entry.gone:
            claim.granted.set_result(False)
            return Verdict.GRANTED
        try:
            # Pins may have taken the room since the claim was made.
            self._require_fit(claim.entry)
        except TooLarge as error:
            claim.granted.set_exception(error)
            return Verdict.GRANTED
        verdict = self._try_lease(claim.entry, tenant)
        if verdict is Verdict.GRANTED:
            claim.granted.set_result(True)
        return verdict

    def _try_lease(self, entry: SlotEntry, tenant: str) -> Verdict:
        verdict = self.device.try_lease(entry, tenant)
        if verdict is Verdict.GRANTED and entry.installing is None:
            self._install(entry)
        return verdict

    def _release(self, entry: SlotEntry, tenant: str) -> None:
        if self.device.end_lease(entry, tenant):
            self._settle(entry)
            self._serve()

    def _settle(self, entry: SlotEntry) -> None:
        """An adapter without leases becomes idle, or is dropped if it is deleted."""
        if entry.leases or entry.gone or not entry.loaded:
            return
        if entry.retired:
            self._drop(entry)
        else:
            self.device.let_idle(entry)

    def _place_unwanted(self, entry: SlotEntry) -> None:
        """Installs an adapter that nobody waits for, if there is free room; otherwise it stays in the host tier."""
        if self._turns.waiting or entry.retired or not self.device.has_room(entry.nbytes):
            self._abandon(entry)
        else:
            self._install(entry)

    def _install(self, entry: SlotEntry) -> None:
        artifact, entry.artifact = entry.artifact, None
        assert artifact is not None, "an artifact is fetched before it is installed, and installed once"
        self.device.begin_install(entry)
        entry.installing = asyncio.create_task(self._loader.install(artifact))
        entry.installing.add_done_callback(lambda task: self._after_install(entry, succeeded(task)))
        self._fetches.finish(entry)

    async def _installed(self, entry: SlotEntry) -> Resident:
        assert entry.installing is not None, "a leased adapter has room"
        return entry.installing.result() if entry.loaded else await asyncio.shield(entry.installing)

    def _take(self, entry: SlotEntry, artifact: Artifact) -> None:
        """The store has answered."""
        self._know(entry, artifact)
        if not entry.wanted:
            self._place_unwanted(entry)

    def _know(self, entry: SlotEntry, artifact: Artifact) -> None:
        entry.fetched, entry.artifact, entry.nbytes = True, artifact, self._loader.device_bytes(artifact)
        if not entry.retired:
            self._host.put(entry.key, artifact)

    def _after_install(self, entry: SlotEntry, succeeded: bool) -> None:
        self.device.end_install(entry, succeeded=succeeded)
        if succeeded:
            entry.loaded = True
            self._loading.pop(entry, None)
            self._metrics.loads.inc()
            self._metrics.load_seconds.labels(entry.found_in).observe(time.monotonic() - entry.begun_at)
            self._settle(entry)
        else:
            self._fail(entry)
        self._serve()

    def _drop(self, entry: SlotEntry) -> None:
        self.device.remove(entry)
        # Waiting callers may still refer to the entry, which must not keep the adapter in memory.
        entry.installing = None
        self._abandon(entry)

    def _fail(self, entry: SlotEntry) -> None:
        self._metrics.load_failures.inc()
        self._abandon(entry)

    def _abandon(self, entry: SlotEntry) -> None:
        entry.gone = True
        entry.artifact = None
        self._loading.pop(entry, None)
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
        self._fetches.withdraw(entry)


def _is_granted(granted: asyncio.Future[bool]) -> bool:
    return granted.done() and not granted.cancelled() and granted.exception() is None and granted.result()
