"""A store and a device in memory, and callers that hold leases of its adapters."""

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakSet

from peltier_server.metrics.metrics import Metrics
from peltier_server.residency.slots import Slots
from peltier_server.residency.tiers import MemoryBudget

SIZES = {"a": 3, "b": 4, "c": 5, "d": 2, "e": 7}
# What they take in the host tier: a file may be lighter than what is built of it.
HOST_SIZES = {"a": 3, "b": 2, "c": 4, "d": 1, "e": 7}
DEVICE_BYTES, HOST_BYTES = 10, 8
TENANTS = ("t", "u", "v")


class LoadFailed(Exception):
    """The fake store failed."""


@dataclass(eq=False)
class FakeArtifact:
    digest: str
    nbytes: int


@dataclass(eq=False)
class FakeResident:
    digest: str
    nbytes: int


@dataclass
class FakeLoader:
    """A store, and a device whose memory is free when no reference to a resident is left."""

    installed: WeakSet[FakeResident] = field(default_factory=WeakSet)
    fetches: list[str] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    hanging: set[str] = field(default_factory=set)

    @property
    def held_bytes(self) -> int:
        held = sum(resident.nbytes for resident in self.installed)
        if held > DEVICE_BYTES:  # the traceback of a cancelled holder may still name what it held
            gc.collect()
            held = sum(resident.nbytes for resident in self.installed)
        return held

    async def prove(self, artifact: FakeArtifact, tenant: str) -> None:
        """Any artifact may answer."""

    async def fetch(self, digest: str) -> FakeArtifact:
        self.fetches.append(digest)
        await asyncio.sleep(0)
        if digest in self.hanging:
            await asyncio.Event().wait()
        if digest in self.failing:
            raise LoadFailed(digest)
        return FakeArtifact(digest, HOST_SIZES.get(digest, 10))

    def device_bytes(self, artifact: FakeArtifact) -> int:
        return SIZES.get(artifact.digest, 10)

    async def install(self, artifact: FakeArtifact) -> FakeResident:
        await asyncio.sleep(0)
        resident = FakeResident(artifact.digest, self.device_bytes(artifact))
        self.installed.add(resident)
        return resident


def make_slots(loader, device_bytes=DEVICE_BYTES, host_bytes=HOST_BYTES, seconds=60):
    return Slots(loader, MemoryBudget(device_bytes, host_bytes, seconds), Metrics())


async def settle() -> None:
    """Waits until the loop has no work."""
    for _ in range(80):
        await asyncio.sleep(0)


class Holder:
    """A caller that holds a lease until it is told to let go."""

    def __init__(self, slots: Slots, digest: str, tenant: str = "t") -> None:
        self.digest = digest
        self.tenant = tenant
        # What it waits for has been deleted meanwhile, so it has its own copy.
        self.wants_deleted = False
        self.resident: FakeResident | None = None
        self.release = asyncio.Event()
        self.task = asyncio.ensure_future(self._hold(slots))

    async def _hold(self, slots: Slots) -> None:
        async with slots.lease(self.digest, self.tenant) as lease:
            self.resident = lease.resident
            del lease
            try:
                await self.release.wait()
            finally:
                self.resident = None

    @property
    def holds(self) -> bool:
        return self.resident is not None

    @property
    def waits(self) -> bool:
        return self.resident is None and not self.task.done()


class Pinner(Holder):
    """A caller that pins an adapter and holds no lease of it afterwards."""

    async def _hold(self, slots: Slots) -> None:
        await slots.pin(self.digest, self.tenant)


async def end(holders: Sequence[Holder], slots: Slots | None = None) -> None:
    """All let go, those that hang by the end of their loads."""
    for holder in holders:
        holder.release.set()
    await settle()
    if slots is not None:
        for holder in holders:
            holder.task.cancel()
        await slots.close()
        await asyncio.gather(*(holder.task for holder in holders), return_exceptions=True)
