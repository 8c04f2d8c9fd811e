"""The device tier, for any sequence of leases, releases, cancellations, failures and deletions."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakSet

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from peltier_client.errors import TooLarge, Unavailable
from peltier_server.metrics import Metrics
from peltier_server.residency import slots as slots_module
from peltier_server.residency.slots import Slots

SIZES = {"a": 3, "b": 4, "c": 5, "d": 2, "e": 7}
# What they take in the host tier: a file may be lighter than what is built of it.
HOST_SIZES = {"a": 3, "b": 2, "c": 4, "d": 1, "e": 7}
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


@dataclass
class FakeLoader:
    """A store, and a device whose memory is free when nobody names a resident any more."""

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

    async def fetch(self, digest: str) -> FakeArtifact:
        self.fetches.append(digest)
        await asyncio.sleep(0)
        if digest in self.hanging:
            await asyncio.Event().wait()
        if digest in self.failing:
            raise LoadFailed(digest)
        return FakeArtifact(digest, HOST_SIZES[digest])

    def device_bytes(self, artifact: FakeArtifact) -> int:
        return SIZES[artifact.digest]

    async def install(self, artifact: FakeArtifact) -> FakeResident:
        await asyncio.sleep(0)
        resident = FakeResident(artifact.digest, self.device_bytes(artifact))
        self.installed.add(resident)
        return resident


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
            holder = data.draw(st.sampled_from(self.holders))
            holder.task.cancel()
            self.loop.run_until_complete(settle())
            self.holders.remove(holder)  # its traceback would go on naming what it held

    @rule(digest=st.sampled_from(sorted(SIZES)))
    def prefetch(self, digest: str) -> None:
        async def act() -> None:
            self.slots.prefetch(digest)

        with self.settling():
            self.loop.run_until_complete(act())

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
                assert holder.resident.digest == holder.digest

    @invariant()
    def the_device_is_never_overfull(self) -> None:
        assert self.slots.used_bytes <= DEVICE_BYTES
        assert self.loader.held_bytes <= DEVICE_BYTES

    @invariant()
    def room_is_for_what_is_there(self) -> None:
        held = {holder.resident for holder in self.holders if holder.holds}
        assert sum(resident.nbytes for resident in held) <= self.slots.used_bytes <= self.loader.held_bytes

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
    await settle()
    assert second.holds
    second.release.set()
    await second.task


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
    holder.task = asyncio.current_task()  # the traceback of the other names what it waited for
    gc.collect()
    assert not loader.installed
    assert slots.used_bytes == 0


async def test_a_deleted_adapter_leaves_after_its_last_lease() -> None:
    """Deletion is two-phase: the rows in flight still have their weights."""
    loader = FakeLoader()
    slots = make_slots(loader)
    async with slots.lease("a"):
        slots.retire("a")
        await settle()
        assert len(loader.installed) == 1
        assert slots.used_bytes == 3
    assert not loader.installed
    assert slots.used_bytes == 0


async def test_a_load_begins_before_its_lease() -> None:
    """While a request is still being read; what it is told is where the adapter was when it came."""
    loader = FakeLoader()
    slots = make_slots(loader)
    slots.prefetch("a")
    slots.prefetch("a")
    await settle()
    assert {resident.digest for resident in loader.installed} == {"a"}
    async with slots.lease("a") as lease:
        assert lease.tier == "store"
    async with slots.lease("a") as lease:
        assert lease.tier == "device"
    assert loader.fetches == ["a"]


async def test_what_nobody_leases_evicts_nobody() -> None:
    """A request that is refused costs others nothing; what was fetched for it waits in the host tier."""
    loader = FakeLoader()
    slots = make_slots(loader, device_bytes=5)
    async with slots.lease("b"):
        pass
    slots.prefetch("c")
    await settle()
    assert {resident.digest for resident in loader.installed} == {"b"}
    async with slots.lease("c") as lease:
        assert lease.tier == "host"
    assert loader.fetches == ["b", "c"]


async def test_a_prefetch_that_fails_is_tried_again() -> None:
    """Its failure is nobody's; the lease has its own."""
    loader = FakeLoader(failing={"a"})
    slots = make_slots(loader)
    slots.prefetch("a")
    await settle()
    loader.failing.clear()
    async with slots.lease("a") as lease:
        assert lease.resident.digest == "a"


async def test_a_store_that_hangs_holds_nobody_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many loads hang, each has its time; what comes from the host tier waits for none of them."""
    monkeypatch.setattr(slots_module, "_FETCH_SECONDS", 0.05)
    monkeypatch.setattr(slots_module, "_MAX_FETCHES", 2)
    loader = FakeLoader(hanging={"a", "b"})
    slots = make_slots(loader, device_bytes=5, host_bytes=100)
    for digest in "cd":  # c is now in the host tier
        async with slots.lease(digest):
            pass
    hanging = [Holder(slots, digest) for digest in "ab"]
    await settle()
    async with slots.lease("c") as lease:
        assert lease.tier == "host"
    assert all(one.waits for one in hanging)
    async with slots.lease("d") as lease:
        assert lease.resident.digest == "d"
    async with asyncio.timeout(10):
        for one in hanging:
            with pytest.raises(Unavailable, match="the store does not answer just now"):
                await one.task
    loader.hanging.clear()
    async with asyncio.timeout(10), slots.lease("a") as lease:
        assert lease.tier == "store"


async def test_a_load_waits_for_its_turn_no_longer_than_others_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every turn taken by a load that hangs, the next one comes through once their time is over."""
    monkeypatch.setattr(slots_module, "_FETCH_SECONDS", 0.05)
    monkeypatch.setattr(slots_module, "_MAX_FETCHES", 2)
    loader = FakeLoader(hanging={"a", "b"})
    slots = make_slots(loader)
    hanging = [Holder(slots, digest) for digest in "ab"]
    await settle()
    async with asyncio.timeout(10), slots.lease("c") as lease:
        assert lease.resident.digest == "c"
    await asyncio.gather(*(one.task for one in hanging), return_exceptions=True)


async def test_a_load_that_nobody_waits_for_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers who gave up while it stood in line do not cost those behind them a turn."""
    monkeypatch.setattr(slots_module, "_MAX_FETCHES", 1)
    loader = FakeLoader(hanging={"a"})
    slots = make_slots(loader)
    first, gone = Holder(slots, "a"), Holder(slots, "b")
    await settle()
    gone.task.cancel()
    loader.hanging.clear()
    await slots.close()
    await settle()
    assert loader.fetches == ["a"]
    assert first.task.done()


async def test_gauges_tell_what_the_device_holds() -> None:
    """After loads, an eviction and a deletion under a lease."""
    metrics = Metrics()
    slots: Slots = Slots(FakeLoader(), device_bytes=10, host_bytes=0, metrics=metrics)

    def gauges() -> tuple[float, float]:
        adapters, nbytes = metrics.adapters.labels("device"), metrics.adapter_bytes.labels("device")
        return adapters._value.get(), nbytes._value.get()

    for digest in "abc":  # 3 + 4, then 5 in place of the first
        async with slots.lease(digest):
            pass
    assert gauges() == (2, 9)
    async with slots.lease("b"):
        slots.retire("b")
        assert gauges() == (2, 9)
    assert gauges() == (1, 5)


@pytest.mark.parametrize("given", [False, True])
async def test_what_is_deleted_while_it_loads_does_not_come_back(given: bool) -> None:
    """Neither the load from the store nor an upload's own keeps it in the host tier: whoever asks next fetches it."""
    loader = FakeLoader()
    slots = make_slots(loader)

    async def use() -> str:
        async with slots.lease("a", FakeArtifact("a", 3) if given else None) as lease:
            return lease.tier

    first = asyncio.ensure_future(use())
    await asyncio.sleep(0)
    slots.retire("a")
    await first
    await settle()
    async with slots.lease("a") as lease:
        assert lease.tier == "store"
    assert loader.fetches[-1:] == ["a"]
