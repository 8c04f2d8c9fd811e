"""The device tier, for any sequence of leases, releases, cancellations, failures and deletions."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from peltier_client.errors import TooLarge
from peltier_server.metrics import Metrics
from peltier_server.slots import Slots

SIZES = {"a": 3, "b": 4, "c": 5, "d": 2, "e": 7}
DEVICE_BYTES = 10


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
    removed: bool = False


@dataclass
class FakeLoader:
    """A store and a device that check what they are asked."""

    installed: set[FakeResident] = field(default_factory=set)
    fetches: list[str] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    max_bytes: int = DEVICE_BYTES
    removed_twice: bool = False
    reading: set[str] = field(default_factory=set)

    async def fetch(self, digest: str) -> FakeArtifact:
        self.fetches.append(digest)
        await asyncio.sleep(0)
        if digest in self.failing:
            raise LoadFailed(digest)
        return FakeArtifact(digest, SIZES[digest])

    async def install(self, artifact: FakeArtifact) -> FakeResident:
        await asyncio.sleep(0)
        resident = FakeResident(artifact.digest, artifact.nbytes)
        self.installed.add(resident)
        assert sum(one.nbytes for one in self.installed) <= self.max_bytes
        return resident

    async def remove(self, resident: FakeResident) -> None:
        # Not an assertion: it would end in a task that nobody looks at.
        self.removed_twice |= resident.removed
        resident.removed = True
        for _ in range(4):  # longer than an install, so that whoever counts on its room too early is caught
            await asyncio.sleep(0)
        self.installed.discard(resident)

    def reads(self, resident: FakeResident) -> bool:
        return resident.digest in self.reading


def make_slots(loader: FakeLoader, device_bytes: int = DEVICE_BYTES, host_bytes: int = 8) -> Slots:
    return Slots(loader, device_bytes=device_bytes, host_bytes=host_bytes, metrics=Metrics())


async def settle() -> None:
    """Until the loop is quiet, whatever the clock says."""
    for _ in range(80):
        await asyncio.sleep(0)


class Holder:
    """A caller that holds a lease until it is told to let go."""

    def __init__(self, slots: Slots, digest: str) -> None:
        self.digest = digest
        self.resident: FakeResident | None = None
        self.release = asyncio.Event()
        self.task = asyncio.ensure_future(self._hold(slots))

    async def _hold(self, slots: Slots) -> None:
        async with slots.lease(self.digest) as lease:
            self.resident = lease.resident
            await self.release.wait()

    @property
    def holds(self) -> bool:
        return self.resident is not None and not self.task.done()

    @property
    def waits(self) -> bool:
        return self.resident is None and not self.task.done()


class SlotsMachine(RuleBasedStateMachine):
    """Rules run until the loop is quiet, so that every invariant is about a settled state."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.loader = FakeLoader()
        self.slots = self.loop.run_until_complete(self._make())
        self.holders: list[Holder] = []

    async def _make(self) -> Slots:
        return make_slots(self.loader)

    @contextmanager
    def settling(self) -> Iterator[None]:
        yield
        self.loop.run_until_complete(settle())
        for holder in self.holders:
            if holder.task.done() and not holder.task.cancelled():
                assert holder.task.exception() is None or holder.digest in self.loader.failing

    @rule(digests=st.lists(st.sampled_from(sorted(SIZES)), min_size=1, max_size=4))
    def lease(self, digests: list[str]) -> None:
        with self.settling():
            self.holders += self.loop.run_until_complete(self._start(digests))

    async def _start(self, digests: list[str]) -> list[Holder]:
        return [Holder(self.slots, digest) for digest in digests]

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        with self.settling():
            data.draw(st.sampled_from(self.holders)).release.set()

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        with self.settling():
            data.draw(st.sampled_from(self.holders)).task.cancel()

    @rule(digest=st.sampled_from(sorted(SIZES)), again=st.booleans())
    def retire(self, digest: str, again: bool) -> None:
        async def act() -> None:
            self.slots.retire(digest)
            if again:
                self.slots.retire(digest)

        with self.settling():
            self.loop.run_until_complete(act())

    @rule(digest=st.sampled_from(sorted(SIZES)))
    def fail_or_heal(self, digest: str) -> None:
        # A holder that failed is forgotten first, so that a healed adapter may be held to never failing.
        self.holders = [one for one in self.holders if not one.task.done()]
        if not any(one.waits for one in self.holders):
            self.loader.failing ^= {digest}

    @invariant()
    def leases_are_whole(self) -> None:
        for holder in self.holders:
            if holder.holds:
                assert not holder.resident.removed
                assert holder.resident.digest == holder.digest

    @invariant()
    def the_device_is_never_overfull(self) -> None:
        assert not self.loader.removed_twice
        assert sum(resident.nbytes for resident in self.loader.installed) <= DEVICE_BYTES
        assert sum(resident.nbytes for resident in self.loader.installed) <= self.slots.used_bytes <= DEVICE_BYTES

    @invariant()
    def who_waits_waits_for_a_lease(self) -> None:
        wanted = [SIZES[holder.digest] for holder in self.holders if holder.waits]
        if wanted:
            held = {holder.resident for holder in self.holders if holder.holds}
            assert sum(resident.nbytes for resident in held) + max(wanted) > DEVICE_BYTES

    def teardown(self) -> None:
        try:
            self.loop.run_until_complete(asyncio.wait_for(self._end(), 5))
        finally:
            self.loop.close()

    async def _end(self) -> None:
        for holder in self.holders:
            holder.release.set()
        await asyncio.gather(*(holder.task for holder in self.holders), return_exceptions=True)
        await self.slots.close()


TestSlots = SlotsMachine.TestCase
TestSlots.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


async def test_loads_of_one_adapter_are_one_load() -> None:
    """Many callers at once cost one fetch."""
    loader = FakeLoader()
    slots = make_slots(loader)

    async def use() -> FakeResident:
        async with slots.lease("a") as lease:
            return lease.resident

    residents = await asyncio.gather(*(use() for _ in range(8)))
    assert len(set(residents)) == 1
    assert loader.fetches == ["a"]


async def test_a_lease_says_where_the_adapter_was() -> None:
    """From the store, then the device; after an eviction the host."""
    slots = make_slots(FakeLoader(), device_bytes=5, host_bytes=100)
    tiers = []
    for digest in "aaba":
        async with slots.lease(digest) as lease:
            tiers.append(lease.tier)
    assert tiers == ["store", "device", "store", "host"]


async def test_the_least_recently_used_goes_first() -> None:
    """A lease renews the stay of its adapter."""
    loader = FakeLoader()
    slots = make_slots(loader, device_bytes=10)
    for digest in "abad":  # 3 + 4, then 2; b is now the oldest
        async with slots.lease(digest):
            pass
    async with slots.lease("c"):
        assert {resident.digest for resident in loader.installed} == {"a", "c", "d"}


async def test_what_a_lost_computation_may_read_goes_last() -> None:
    """Freeing it may take for ever, and others are free at once."""
    loader = FakeLoader(reading={"a"})
    slots = make_slots(loader, device_bytes=10)
    for digest in "abe":  # 3 + 4, then 7: b makes room although a is older
        async with slots.lease(digest):
            assert {resident.digest for resident in loader.installed} >= {"a"}
    assert {resident.digest for resident in loader.installed} == {"a", "e"}


async def test_what_the_device_can_never_hold_is_refused() -> None:
    """Waiting would not help."""
    with pytest.raises(TooLarge, match="the adapter has 7 bytes; this server keeps 5 on the device"):
        async with make_slots(FakeLoader(), device_bytes=5).lease("e"):
            pass


async def test_a_failed_load_is_tried_again() -> None:
    """A store that was away for a moment does not cost the adapter its life."""
    loader = FakeLoader(failing={"a"})
    slots = make_slots(loader)
    with pytest.raises(LoadFailed):
        async with slots.lease("a"):
            pass
    loader.failing.clear()
    async with slots.lease("a") as lease:
        assert lease.tier == "store"
    assert slots.used_bytes == 3


async def test_a_caller_who_gives_up_does_not_end_the_load() -> None:
    """Others wait for it."""
    slots = make_slots(FakeLoader())
    first, second = Holder(slots, "a"), Holder(slots, "a")
    await asyncio.sleep(0)
    first.task.cancel()
    second.release.set()
    await second.task
    assert second.resident.digest == "a"


async def test_loads_get_their_room_in_the_order_they_asked() -> None:
    """Small adapters do not starve a large one."""
    slots = make_slots(FakeLoader(), device_bytes=10)
    held, large, small = (Holder(slots, digest) for digest in ("c", "e", "a"))
    await settle()
    assert (held.holds, large.waits, small.waits) == (True, True, True)
    held.release.set()
    await settle()
    assert (large.holds, small.holds) == (True, True)
    for holder in (large, small):
        holder.release.set()
        await holder.task


async def test_a_load_that_nobody_waits_for_stands_in_nobodys_way() -> None:
    """Its callers gave up, so those behind it get the room."""
    slots = make_slots(FakeLoader(), device_bytes=10)
    held, large, small = (Holder(slots, digest) for digest in ("c", "e", "a"))
    await settle()
    large.task.cancel()
    await settle()
    assert small.holds
    assert slots.used_bytes == 5 + 3
    for holder in (held, small):
        holder.release.set()
        await holder.task


async def test_the_last_caller_and_the_end_of_the_load_free_once() -> None:
    """Both may meet in one turn of the loop: deleted while it loads, and its only caller gone as the load ends."""

    class Meeting(FakeLoader):
        async def install(self, artifact: FakeArtifact) -> FakeResident:
            resident = await super().install(artifact)
            slots.retire("a")
            holder.task.cancel()
            return resident

    loader = Meeting()
    slots = make_slots(loader)
    holder = Holder(slots, "a")
    await asyncio.wait([holder.task])
    await settle()
    assert not loader.removed_twice
    assert loader.installed == set()
    assert slots.used_bytes == 0


async def test_room_is_free_only_when_its_slots_are() -> None:
    """A load that follows a deletion does not overfill the device for a moment."""
    loader = FakeLoader(max_bytes=5)  # which it checks at every install
    slots = make_slots(loader, device_bytes=5)
    async with slots.lease("c"):
        pass
    slots.retire("c")
    async with slots.lease("b") as lease:
        assert lease.resident.digest == "b"


async def test_a_deleted_adapter_leaves_after_its_last_lease() -> None:
    """Deletion is two-phase: the rows in flight still have their weights."""
    loader = FakeLoader()
    slots = make_slots(loader)
    async with slots.lease("a") as lease:
        slots.retire("a")
        await settle()
        assert not lease.resident.removed
    await settle()
    assert lease.resident.removed
    assert slots.used_bytes == 0
