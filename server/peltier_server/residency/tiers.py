"""The two tiers of adapters in memory: the device, with their leases, and the host. Each has a maximum of bytes."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Any

from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.residency.bank import Resident
from peltier_client.errors import StorageFull
from peltier_client.protocol.predict import Tier

from peltier_server import retry_hints
from peltier_server.context import AdapterKey
from peltier_server.fairness.shared_bound import Shares
from peltier_server.metrics.metrics import Metrics

# Pins leave half of the device to other adapters.
_PINNED_PARTS = 2


class Verdict(Enum):
    """The result of an item's turn."""

    GRANTED = "granted"
    # Its tenant is at the bound of its share; the other tenants have their turn.
    OVER_SHARE = "over share"
    # There is no room; the item gets the next room before any other.
    NO_ROOM = "no room"


@dataclass(frozen=True)
class Lease:
    """The right to use an adapter on the device. `tier` is where it was found, `load_seconds` the time of its load."""

    resident: Resident
    tier: Tier
    load_seconds: float


class SlotEntry:
    """One adapter that is on the device or will be.

    It is fetched unless its artifact is known; then its size is known, and it is installed once there is room. Until
    its fetch has `begun`, the fetch waits in the lines of the tenants `askers`; then it is `charged_to` one of them.
    `wanted` counts the callers that lease it or wait for it, `leases` those that lease it, by tenant. It is `fresh`
    until the first caller wants it, and `gone` once it has been dropped: callers that still wait for it begin again.
    `begun_at` is in seconds of `time.monotonic`.
    """

    fetching: asyncio.Task[None]

    def __init__(self, key: AdapterKey, found_in: Tier) -> None:
        self.key = key
        self.found_in: Tier = found_in
        self.artifact: Artifact | None = None
        self.askers: set[str] = set()
        self.begun = asyncio.Event()
        self.charged_to: str | None = None
        self.fetched = False
        self.nbytes = 0
        self.installing: asyncio.Task[Resident] | None = None
        self.begun_at = time.monotonic()
        self.wanted = 0
        self.leases: Counter[str] = Counter()
        self.is_pinned = False
        self.fresh = True
        self.retired = False
        self.loaded = False
        self.gone = False

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """Its fetch and its installation, as far as they have begun."""
        fetching = [self.fetching] if self.begun.is_set() else []
        return [*fetching, *([] if self.installing is None else [self.installing])]


@dataclass(eq=False)
class SlotClaim:
    """A caller that waits for room. `granted` is False if the adapter was dropped meanwhile."""

    entry: SlotEntry
    granted: asyncio.Future[bool]


@dataclass(frozen=True)
class MemoryBudget:
    """Bytes of each tier, and the maximum wait for a load to begin, and then for room on the device."""

    device_bytes: int
    host_bytes: int
    wait_seconds: float = 10.0


class DeviceTier:
    """Counts at most `max_bytes` of adapters, those that are being installed too, and the leases of each tenant. Calls
    `drop` with each adapter that it evicts. Belongs to the event loop.

    A lease is charged to the caller's tenant, whoever owns the adapter, with all bytes of the adapter; further leases
    of the same adapter by the same tenant are free. A tenant may lease at most three times the bytes that nobody leases
    then. So beside n tenants at that bound, one part of 3 n + 1 of the device is free of leases, less the leases of
    tenants that use only one adapter: every tenant may always lease one.

    Pinned adapters have up to half of the device for themselves: their leases are free, they are never evicted, and all
    of the above holds for the rest of the device. So an adapter of up to half the device can always be loaded.
    """

    def __init__(self, max_bytes: int, metrics: Metrics, drop: Callable[[SlotEntry], None]) -> None:
        self.max_bytes = max_bytes
        # Bytes with leases; `used_bytes` also counts idle adapters, and installations from their reservation on.
        self._leased = Shares(max_bytes)
        self.used_bytes = 0
        self._num_adapters = 0
        self._pinned: dict[AdapterKey, SlotEntry] = {}
        # Loaded adapters without leases, the least recently used first. They are told apart by entry, because a deleted
        # adapter that is still leased may have a successor of the same key.
        self._idle: OrderedDict[SlotEntry, None] = OrderedDict()
        # Those with leases, some of them still being installed.
        self._in_use: dict[SlotEntry, None] = {}
        self._metrics = metrics
        self._drop = drop

    def leased_bytes(self, tenant: str) -> int:
        """Bytes of the adapters that `tenant` leases."""
        return self._leased.held(tenant)

    @property
    def unpinned_bytes(self) -> int:
        """Bytes of the device without those of pinned adapters."""
        return self._leased.capacity

    @property
    def pinned(self) -> set[AdapterKey]:
        """The keys of the pinned adapters."""
        return set(self._pinned)

    @property
    def _pinned_bytes(self) -> int:
        return self.max_bytes - self._leased.capacity

    @property
    def leased_share(self) -> float:
        """The part of the device that is leased or pinned, from 0 to 1: adapters that cannot be evicted now."""
        return (self._leased.taken + self._pinned_bytes) / self.max_bytes

    @property
    def num_free(self) -> int:
        """How many more adapters of the mean size fit without an eviction. At least one on a device without any."""
        mean_bytes = self.used_bytes / max(self._num_adapters, 1)
        return int((self.max_bytes - self.used_bytes) / mean_bytes) if mean_bytes else 1

    def loaded(self) -> Iterator[AdapterKey]:
        """The keys of the loaded adapters: those in use, then the pinned ones, then the idle ones, the most recently
        used first."""
        pinned = (entry for entry in self._pinned.values() if not entry.leases)
        return (entry.key for entry in chain(self._in_use, pinned, reversed(self._idle)) if entry.loaded)

    def has_room(self, num_bytes: int) -> bool:
        """Whether so many bytes are free without an eviction."""
        return self.used_bytes + num_bytes <= self.max_bytes

    def try_lease(self, entry: SlotEntry, tenant: str) -> Verdict:
        """Leases `entry` to `tenant` if its share and the room allow it. Evicts idle adapters for one that is not on
        the device; its room is free then, and the caller installs it at once."""
        if not entry.is_pinned and not entry.leases[tenant]:
            room = 0 if entry.leases.total() else entry.nbytes
            if not self._leased.allows(tenant, entry.nbytes, room):
                return Verdict.OVER_SHARE
            if entry.installing is None and not self._make_room(entry.nbytes):
                return Verdict.NO_ROOM
            self._leased.take(tenant, entry.nbytes, room)
        entry.leases[tenant] += 1
        self._idle.pop(entry, None)
        self._in_use[entry] = None
        return Verdict.GRANTED

    def end_lease(self, entry: SlotEntry, tenant: str) -> bool:
        """Ends a lease. Returns whether it was the last one of `tenant`, which leaves more to others."""
        entry.leases[tenant] -= 1
        if entry.leases[tenant]:
            return False
        del entry.leases[tenant]
        if not entry.is_pinned:
            self._leased.give_back(tenant, entry.nbytes, 0 if entry.leases else entry.nbytes)
        if not entry.leases:
            del self._in_use[entry]
        return True

    def pin(self, entry: SlotEntry) -> None:
        """Keeps a loaded adapter until `unpin`. Raises `StorageFull` if it does not fit beside other pins."""
        if entry.is_pinned:
            return
        max_pinned = self.max_bytes // _PINNED_PARTS
        if self._pinned_bytes + entry.nbytes > max_pinned:
            raise StorageFull(
                f"pinned adapters take {self._pinned_bytes} of the {max_pinned} bytes that they may take on the "
                f"device; {entry.nbytes} more do not fit",
                retry_after=retry_hints.STORE_FULL,
            )
        self._charge(entry, -1)
        self._leased.capacity -= entry.nbytes
        entry.is_pinned = True
        self._pinned[entry.key] = entry
        self._idle.pop(entry, None)
        self._report()

    def unpin(self, entry: SlotEntry) -> None:
        """Ends the pin of an adapter, if it has one. The tenants that lease it are charged again."""
        if not entry.is_pinned:
            return
        entry.is_pinned = False
        del self._pinned[entry.key]
        self._leased.capacity += entry.nbytes
        self._charge(entry, 1)
        self._report()

    def _charge(self, entry: SlotEntry, sign: int) -> None:
        """Charges the tenants that lease an adapter for it, or gives it back to them."""
        for number, holder in enumerate(entry.leases):
            self._leased.take(holder, sign * entry.nbytes, 0 if number else sign * entry.nbytes)

    def begin_install(self, entry: SlotEntry) -> None:
        """Counts the bytes of an adapter from now on."""
        self.used_bytes += entry.nbytes

    def end_install(self, entry: SlotEntry, *, succeeded: bool) -> None:
        """Counts an installed adapter, or no longer the bytes of one whose installation failed."""
        if succeeded:
            self._num_adapters += 1
        else:
            self.used_bytes -= entry.nbytes
        self._report()

    def remove(self, entry: SlotEntry) -> None:
        """Counts an installed adapter no longer."""
        self._idle.pop(entry, None)
        self.used_bytes -= entry.nbytes
        self._num_adapters -= 1
        self._report()

    def let_idle(self, entry: SlotEntry) -> None:
        """Nobody leases the adapter, so it may be evicted unless it is pinned: it is the most recently used one."""
        if not entry.is_pinned:
            self._idle[entry] = None

    def describe(self, tenant: str) -> str:
        """The leases, as a clause of a message for `tenant`."""
        leased = self._leased
        return (
            f"tenant {tenant!r} uses {leased.held(tenant)} bytes, all tenants use {leased.taken} of {leased.capacity}, "
            "and one tenant may have at most 3 times what it leaves"
        )

    def _make_room(self, num_bytes: int) -> bool:
        while not self.has_room(num_bytes):
            if not self._idle:
                return False
            victim, _ = self._idle.popitem(last=False)
            self._metrics.evictions.labels("device").inc()
            self._drop(victim)
        return True

    def _report(self) -> None:
        self._metrics.adapters.labels("device").set(self._num_adapters)
        self._metrics.adapter_bytes.labels("device").set(self.used_bytes)
        self._metrics.pinned_adapters.labels("device").set(len(self._pinned))


class HostCache:
    """Evicts the least recently used artifacts first; keeps none larger than the cache. Belongs to the event loop."""

    def __init__(self, max_bytes: int, metrics: Metrics) -> None:
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._artifacts: OrderedDict[AdapterKey, Artifact] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._artifacts)

    def get(self, key: AdapterKey) -> Artifact | None:
        """The artifact of `key`, if it is in the cache."""
        if key not in self._artifacts:
            return None
        self._artifacts.move_to_end(key)
        return self._artifacts[key]

    def put(self, key: AdapterKey, artifact: Artifact) -> None:
        """Keeps `artifact`, and evicts others for it."""
        if key in self._artifacts or artifact.nbytes > self._max_bytes:
            return
        while self.nbytes + artifact.nbytes > self._max_bytes:
            self.drop(next(iter(self._artifacts)))
            self._metrics.evictions.labels("host").inc()
        self._artifacts[key] = artifact
        self.nbytes += artifact.nbytes
        self._report()

    def drop(self, key: AdapterKey) -> None:
        """Removes `key`, if it is in the cache."""
        artifact = self._artifacts.pop(key, None)
        if artifact is not None:
            self.nbytes -= artifact.nbytes
            self._report()

    def _report(self) -> None:
        self._metrics.adapters.labels("host").set(len(self._artifacts))
        self._metrics.adapter_bytes.labels("host").set(self.nbytes)
