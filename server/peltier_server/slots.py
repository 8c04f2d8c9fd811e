"""Which adapters are on the device: leased while in use, the least recently used out first.

Why a running batch never reads a half-written slot: a bank writes only to a free slot, and a slot becomes free only
through `Loader.remove`, which is called for an adapter without leases and takes effect between two batches. Every row
that is queued or being computed is under the lease of its caller, with one exception: a caller that is cancelled gives
its lease back while its row may be in the batch that runs. That batch ends before the slot is free, and the batches
after it drop the row, because its future was cancelled before the lease was given back.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from peltier_client.errors import TooLarge

from peltier_server.host import HostCache, Sized
from peltier_server.metrics import Metrics

logger = logging.getLogger(__name__)

Tier = Literal["device", "host", "store"]
K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)
A = TypeVar("A", bound=Sized)
R = TypeVar("R")

_MAX_LOADS = 4


class Loader(Protocol[K_contra, A, R]):
    """Moves an adapter between the tiers; none of it blocks the event loop."""

    async def fetch(self, key: K_contra) -> A:
        """From the store, parsed and checked."""

    async def install(self, artifact: A) -> R:
        """Into free slots of the device."""

    async def remove(self, resident: R) -> None:
        """Free its slots, once no running batch reads them."""

    def reads(self, resident: R) -> bool:
        """Freeing its slots may take long, because a computation that was given up may still read them."""


@dataclass(frozen=True)
class Lease(Generic[R]):
    """The right to use an adapter on the device; `tier` is where it was found, and what bringing it here took."""

    resident: R
    tier: Tier
    load_seconds: float


class _AbandonedError(Exception):
    """A load that nobody waits for any more; nobody sees this."""


class _Entry(Generic[K, R]):
    """One adapter that is on the device or on its way."""

    def __init__(self, key: K, tier: Tier) -> None:
        self.key = key
        self.found_in = tier
        self.loading: asyncio.Task[R]
        self.num_leases = 0
        self.nbytes = 0
        self.retired = False

    @property
    def loaded(self) -> bool:
        return self.loading.done() and not self.loading.cancelled() and self.loading.exception() is None

    @property
    def evictable(self) -> bool:
        return self.num_leases == 0 and self.loaded


class Slots(Generic[K, A, R]):
    """The device tier over the host tier, each up to a number of bytes. Belongs to the event loop.

    What has the same key shares slots, and loads of it are one load. Where everything is leased, a load waits for a
    release; loads get their room in the order they asked.
    """

    def __init__(self, loader: Loader[K, A, R], *, device_bytes: int, host_bytes: int, metrics: Metrics) -> None:
        self._loader = loader
        self._device_bytes = device_bytes
        self._metrics = metrics
        self._host: HostCache[K, A] = HostCache(host_bytes, metrics)
        self._entries: OrderedDict[K, _Entry[K, R]] = OrderedDict()
        self._used_bytes = 0
        self._num_loads = asyncio.Semaphore(_MAX_LOADS)
        self._room = asyncio.Lock()
        self._released = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def used_bytes(self) -> int:
        """Bytes on the device, with those that loads have reserved and removals not yet freed."""
        return self._used_bytes

    @asynccontextmanager
    async def lease(self, key: K, artifact: A | None = None) -> AsyncIterator[Lease[R]]:
        """The adapter on the device until the block ends; `artifact` spares the store where the caller has it.

        Raises what the loader raises, and `TooLarge` for an adapter that the whole device tier cannot hold.
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

    def retire(self, key: K) -> None:
        """The adapter is deleted: leases run on, new ones find nothing, the slots are freed after the last."""
        self._host.drop(key)
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.retired = True
            self._discard_if_retired(entry)

    async def close(self) -> None:
        """Ends loads and removals that are under way."""
        pending = [entry.loading for entry in self._entries.values() if not entry.loading.done()]
        for task in (*pending, *self._tasks):
            task.cancel()
        await asyncio.gather(*pending, *self._tasks, return_exceptions=True)

    def _enter(self, key: K, artifact: A | None) -> tuple[_Entry[K, R], Tier]:
        entry = self._entries.get(key)
        if entry is None:
            kept = self._host.get(key) if artifact is None else artifact
            entry = _Entry(key, "store" if kept is None else "host")
            entry.loading = asyncio.create_task(self._load(entry, kept))
            entry.loading.add_done_callback(lambda _: self._loaded(entry))
            self._entries[key] = entry
        self._entries.move_to_end(key)
        entry.num_leases += 1
        tier: Tier = "device" if entry.loaded else entry.found_in
        self._metrics.cache_requests.labels(tier).inc()
        return entry, tier

    def _leave(self, entry: _Entry[K, R]) -> None:
        entry.num_leases -= 1
        if self._entries.get(entry.key) is entry:
            self._entries.move_to_end(entry.key)
        if entry.num_leases == 0:
            self._released.set()
            self._discard_if_retired(entry)

    async def _load(self, entry: _Entry[K, R], artifact: A | None) -> R:
        started = time.monotonic()
        async with self._num_loads:
            if artifact is None:
                artifact = await self._loader.fetch(entry.key)
            if not entry.retired:
                self._host.put(entry.key, artifact)
            await self._reserve(entry, artifact.nbytes)
            resident = await self._loader.install(artifact)
        self._metrics.loads.inc()
        self._metrics.load_seconds.labels(entry.found_in).observe(time.monotonic() - started)
        return resident

    def _loaded(self, entry: _Entry[K, R]) -> None:
        if entry.loaded:
            self._released.set()
            self._discard_if_retired(entry)
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
                    self._forget(entry)
                    raise _AbandonedError
                await self._evict_one()
            entry.nbytes = nbytes
            self._used_bytes += nbytes

    async def _evict_one(self) -> None:
        victim = self._victim()
        if victim is None:
            self._released.clear()
            await self._released.wait()
            return
        del self._entries[victim.key]
        self._metrics.evictions.labels("device").inc()
        await self._discard(victim)

    def _victim(self) -> _Entry[K, R] | None:
        unread = (entry for entry in self._evictable() if not self._loader.reads(entry.loading.result()))
        return next(unread, None) or next(self._evictable(), None)

    def _evictable(self) -> Iterator[_Entry[K, R]]:
        return (entry for entry in self._entries.values() if entry.evictable)

    def _discard_if_retired(self, entry: _Entry[K, R]) -> None:
        if entry.retired and entry.evictable:
            entry.retired = False  # its last lease and the end of its load may both ask for this
            task = asyncio.create_task(self._discard(entry))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _discard(self, entry: _Entry[K, R]) -> None:
        await self._loader.remove(entry.loading.result())
        self._free(entry)
        self._report()

    def _forget(self, entry: _Entry[K, R]) -> None:
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]

    def _free(self, entry: _Entry[K, R]) -> None:
        self._used_bytes -= entry.nbytes
        entry.nbytes = 0
        self._released.set()

    def _report(self) -> None:
        resident = sum(1 for entry in self._entries.values() if entry.loaded)
        self._metrics.adapters.labels("device").set(resident)
        self._metrics.adapter_bytes.labels("device").set(self._used_bytes)
