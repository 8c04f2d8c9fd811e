"""Which adapters are on the device: leased while in use, the least recently used out first.

A lease is a pin: what is queued or being computed is under the lease of its caller and stays. A caller that is
cancelled gives its lease back while its row may be in the batch that runs. If the adapter leaves then, the batch keeps
its memory until it ends, and nobody writes there (see `peltier_adapters.bank`): until then, and by no more than that
batch, the device holds more than is counted here.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, Literal, NoReturn, Protocol, TypeVar

from peltier_client.errors import TooLarge, Unavailable

from peltier_server.metrics import Metrics
from peltier_server.residency.host import HostCache, Sized

logger = logging.getLogger(__name__)

Tier = Literal["device", "host", "store"]
K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)
A = TypeVar("A", bound=Sized)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

# A store that answers slowly is asked for this many adapters at once; one that hangs holds nobody up for longer.
_MAX_FETCHES = 16
_FETCH_SECONDS = 30.0
_RETRY_AFTER_SECONDS = 1.0


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
class Lease(Generic[R]):
    """The right to use an adapter on the device; `tier` is where it was found, and what bringing it here took."""

    resident: R
    tier: Tier
    load_seconds: float


class _AbandonedError(Exception):
    """A load that nobody waits for any more; nobody sees this."""


class _Entry(Generic[K, R]):
    """One adapter that is on the device or on its way. `fresh` until someone has leased it."""

    def __init__(self, key: K, tier: Tier) -> None:
        self.key = key
        self.found_in = tier
        self.loading: asyncio.Task[R]
        self.num_leases = 0
        self.nbytes = 0
        self.fresh = True
        self.retired = False

    @property
    def loaded(self) -> bool:
        return self.loading.done() and not self.loading.cancelled() and self.loading.exception() is None


class Slots(Generic[K, A, R]):
    """The device tier over the host tier, each up to a number of bytes. Belongs to the event loop.

    What has the same key shares slots, and loads of it are one load. Where everything is leased, a load waits for a
    release; loads get their room in the order they asked. Nothing here takes longer the more adapters there are.
    """

    def __init__(self, loader: Loader[K, A, R], *, device_bytes: int, host_bytes: int, metrics: Metrics) -> None:
        self._loader = loader
        self._device_bytes = device_bytes
        self._metrics = metrics
        self._host: HostCache[K, A] = HostCache(host_bytes, metrics)
        self._entries: dict[K, _Entry[K, R]] = {}
        # Those of them that are loaded and not leased, the least recently used first.
        self._idle: OrderedDict[K, _Entry[K, R]] = OrderedDict()
        self._used_bytes = 0
        self._num_resident = 0
        self._fetching = asyncio.Semaphore(_MAX_FETCHES)
        self._room = asyncio.Lock()
        self._released = asyncio.Event()

    @property
    def used_bytes(self) -> int:
        """Bytes on the device, with those that loads have reserved."""
        return self._used_bytes

    @asynccontextmanager
    async def lease(self, key: K, artifact: A | None = None) -> AsyncIterator[Lease[R]]:
        """The adapter on the device until the block ends; `artifact` spares the store where the caller has it.

        Raises what the loader raises, `TooLarge` for an adapter that the whole device tier cannot hold, and
        `Unavailable` where the store does not answer in time.
        """
        started = time.monotonic()
        entry, tier = self._enter(key, artifact)
        try:
            # Others may wait for the same load, so a caller who gives up does not end it.
            resident = await asyncio.shield(entry.loading)
            seconds = 0.0 if tier == "device" else time.monotonic() - started
            yield Lease(resident, tier, seconds)
        finally:
            self._leave(entry)

    def prefetch(self, key: K) -> None:
        """Begins to load what will be leased soon. Until then the load takes free room alone and evicts nobody."""
        if key not in self._entries:
            self._begin(key, None)

    def retire(self, key: K) -> None:
        """The adapter is deleted: leases run on, new ones find nothing, its memory is freed after the last."""
        self._host.drop(key)
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.retired = True
            self._idle.pop(key, None)
            self._settle(entry)

    async def close(self) -> None:
        """Ends the loads that are under way."""
        pending = [entry.loading for entry in self._entries.values() if not entry.loading.done()]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    def _enter(self, key: K, artifact: A | None) -> tuple[_Entry[K, R], Tier]:
        entry = self._entries.get(key) or self._begin(key, artifact)
        # Whoever asked for the load ahead is told where the adapter was before.
        tier: Tier = "device" if entry.loaded and not entry.fresh else entry.found_in
        self._idle.pop(key, None)
        entry.num_leases += 1
        entry.fresh = False
        self._metrics.cache_requests.labels(tier).inc()
        return entry, tier

    def _begin(self, key: K, artifact: A | None) -> _Entry[K, R]:
        kept = self._host.get(key) if artifact is None else artifact
        entry: _Entry[K, R] = _Entry(key, "store" if kept is None else "host")
        entry.loading = asyncio.create_task(self._load(entry, kept))
        entry.loading.add_done_callback(lambda _: self._loaded(entry))
        self._entries[key] = entry
        return entry

    def _leave(self, entry: _Entry[K, R]) -> None:
        entry.num_leases -= 1
        if entry.num_leases == 0:
            self._released.set()
            self._settle(entry)

    def _settle(self, entry: _Entry[K, R]) -> None:
        """What nobody leases may be evicted, or goes at once if it is deleted."""
        if entry.num_leases or not entry.loaded:
            return
        if not entry.retired:
            self._idle[entry.key] = entry
        elif entry.nbytes:  # its last lease and the end of its load may both ask for this
            self._drop(entry)

    async def _load(self, entry: _Entry[K, R], artifact: A | None) -> R:
        started = time.monotonic()
        if artifact is None:
            async with self._fetching:
                if entry.num_leases == 0 and not entry.fresh:
                    self._abandon(entry)
                artifact = await self._fetch(entry)
                # With the right to fetch, so that there are never more artifacts in memory that wait for room.
                await self._reserve(entry, self._loader.device_bytes(artifact))
        else:
            self._keep(entry, artifact)
            await self._reserve(entry, self._loader.device_bytes(artifact))
        resident = await self._loader.install(artifact)
        self._num_resident += 1
        self._metrics.loads.inc()
        self._metrics.load_seconds.labels(entry.found_in).observe(time.monotonic() - started)
        return resident

    async def _fetch(self, entry: _Entry[K, R]) -> A:
        clock = asyncio.timeout(_FETCH_SECONDS)
        try:
            async with clock:
                artifact = await self._loader.fetch(entry.key)
        except TimeoutError:
            if not clock.expired():
                raise
            logger.error("the store has not answered within %g s", _FETCH_SECONDS)
            raise Unavailable("the store does not answer just now", retry_after=_RETRY_AFTER_SECONDS) from None
        self._keep(entry, artifact)
        return artifact

    def _keep(self, entry: _Entry[K, R], artifact: A) -> None:
        if not entry.retired:
            self._host.put(entry.key, artifact)

    def _loaded(self, entry: _Entry[K, R]) -> None:
        if entry.loaded:
            self._released.set()
            self._settle(entry)
        else:
            self._forget(entry)
            self._free(entry)
        self._report()

    async def _reserve(self, entry: _Entry[K, R], nbytes: int) -> None:
        if nbytes > self._device_bytes:
            raise TooLarge(f"the adapter has {nbytes} bytes; this server keeps {self._device_bytes} on the device")
        async with self._room:
            while self._used_bytes + nbytes > self._device_bytes:
                if entry.num_leases == 0:
                    # Everyone who wanted it has gone, so it shall neither evict others nor stand in their way.
                    self._abandon(entry)
                await self._evict_one()
            entry.nbytes = nbytes
            self._used_bytes += nbytes

    async def _evict_one(self) -> None:
        if not self._idle:
            self._released.clear()
            await self._released.wait()
            return
        key, victim = self._idle.popitem(last=False)
        del self._entries[key]
        self._metrics.evictions.labels("device").inc()
        self._drop(victim)

    def _drop(self, entry: _Entry[K, R]) -> None:
        # Nothing here names the adapter any more.
        self._num_resident -= 1
        self._free(entry)
        self._report()

    def _abandon(self, entry: _Entry[K, R]) -> NoReturn:
        self._forget(entry)
        raise _AbandonedError

    def _forget(self, entry: _Entry[K, R]) -> None:
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]

    def _free(self, entry: _Entry[K, R]) -> None:
        self._used_bytes -= entry.nbytes
        entry.nbytes = 0
        self._released.set()

    def _report(self) -> None:
        self._metrics.adapters.labels("device").set(self._num_resident)
        self._metrics.adapter_bytes.labels("device").set(self._used_bytes)
