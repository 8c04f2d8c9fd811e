"""The device tier, for any sequence of leases, releases, cancellations, failures and deletions."""

import asyncio
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakSet

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from peltier_client.errors import TooLarge, Unavailable
from peltier_server.metrics.metrics import Metrics
from peltier_server.residency import fetches as fetches_module
from peltier_server.residency.device_tier import MemoryBudget
from peltier_server.residency.slots import Slots

SIZES = {"a": 3, "b": 4, "c": 5, "d": 2, "e": 7}
# What they take in the host tier: a file may be lighter than what is built of it.
HOST_SIZES = {"a": 3, "b": 2, "c": 4, "d": 1, "e": 7}
DEVICE_BYTES = 10
WEIGHTS = {"t": 1.0, "u": 2.0, "v": 1.0}


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


def make_slots(loader: FakeLoader, device_bytes: int = DEVICE_BYTES, host_bytes: int = 8, seconds: float = 60) -> Slots:
    return Slots(loader, MemoryBudget(device_bytes, host_bytes, seconds), Metrics(), WEIGHTS.__getitem__)


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


TENANTS = st.sampled_from(sorted(WEIGHTS))


class SlotsMachine(RuleBasedStateMachine):
    """Rules run until the loop is quiet, so that every invariant is about a settled state."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.loader = FakeLoader()
        self.slots = self.loop.run_until_complete(self._make())
        self.holders: list[Holder] = []
        self.retired: WeakSet[FakeResident] = WeakSet()

    async def _make(self) -> Slots:
        return make_slots(self.loader)

    @contextmanager
    def settling(self) -> Iterator[None]:
        yield
        self.loop.run_until_complete(settle())
        for holder in self.holders:
            if holder.task.done() and not holder.task.cancelled():
                assert holder.task.exception() is None or holder.digest in self.loader.failing

    @rule(wanted=st.lists(st.tuples(st.sampled_from(sorted(SIZES)), TENANTS), min_size=1, max_size=4))
    def lease(self, wanted: list[tuple[str, str]]) -> None:
        with self.settling():
            self.holders += self.loop.run_until_complete(self._start(wanted))

    async def _start(self, wanted: list[tuple[str, str]]) -> list[Holder]:
        return [Holder(self.slots, digest, tenant) for digest, tenant in wanted]

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

    @rule(digest=st.sampled_from(sorted(SIZES)), tenant=TENANTS)
    def prefetch(self, digest: str, tenant: str) -> None:
        async def act() -> None:
            self.slots.prefetch(digest, tenant)

        with self.settling():
            self.loop.run_until_complete(act())

    @rule(digest=st.sampled_from(sorted(SIZES)), again=st.booleans())
    def retire(self, digest: str, again: bool) -> None:
        async def act() -> None:
            self.retired.update(one for one in self.loader.installed if one.digest == digest)
            for holder in self.holders:
                holder.wants_deleted |= holder.waits and holder.digest == digest
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
    def a_tenant_is_charged_for_what_it_holds(self) -> None:
        for tenant in WEIGHTS:
            assert self.slots.leased_bytes(tenant) == sum(one.nbytes for one in self.held_by(tenant))

    @invariant()
    def who_waits_waits_for_a_lease(self) -> None:
        """Its own tenant's, if that has its share; else for room, which the first of those who wait for it gets."""
        rest = DEVICE_BYTES - sum(resident.nbytes for resident in self.held_by(*WEIGHTS))
        could_go = {tenant: self._verdicts(tenant, rest) for tenant in WEIGHTS}
        if not any("no room" in verdicts for verdicts in could_go.values()):
            assert not any(verdicts == {"may go"} for verdicts in could_go.values())

    def _verdicts(self, tenant: str, rest: int) -> set[str]:
        held = self.held_by(tenant)
        found = set()
        for holder in self.holders:
            if holder.waits and holder.tenant == tenant:
                there = {one.digest for one in self.holders if one.holds and not self._holds_deleted(one)}
                room = 0 if holder.digest in there and not holder.wants_deleted else SIZES[holder.digest]
                charge = sum(one.nbytes for one in held) + SIZES[holder.digest]
                within = not held or charge <= 3 * (rest - room)
                found.add("over share" if not within else "may go" if room <= rest else "no room")
        return found

    def _holds_deleted(self, holder: Holder) -> bool:
        return holder.wants_deleted or holder.resident in self.retired

    def held_by(self, *tenants: str) -> set[FakeResident]:
        return {one.resident for one in self.holders if one.holds and one.tenant in tenants}

    def teardown(self) -> None:
        try:
            self.loop.run_until_complete(asyncio.wait_for(self._end(), 5))
        finally:
            self.loop.close()

    async def _end(self) -> None:
        for holder in self.holders:
            holder.release.set()
        await asyncio.gather(*(holder.task for holder in self.holders), return_exceptions=True)
        await settle()
        assert not any(map(self.slots.leased_bytes, WEIGHTS))
        assert not self.slots._line.waiting
        assert not self.slots._fetches._line.waiting
        await self.slots.close()


TestSlots = SlotsMachine.TestCase
TestSlots.settings = settings(stateful_step_count=40)


async def test_loads_of_one_adapter_are_one_load() -> None:
    """Many callers at once cost one fetch."""
    loader = FakeLoader()
    slots = make_slots(loader)

    async def use() -> FakeResident:
        async with slots.lease("a", "t") as lease:
            return lease.resident

    residents = await asyncio.gather(*(use() for _ in range(8)))
    assert len(set(residents)) == 1
    assert loader.fetches == ["a"]


async def test_a_lease_says_where_the_adapter_was() -> None:
    """From the store, then the device; after an eviction the host."""
    slots = make_slots(FakeLoader(), device_bytes=5, host_bytes=100)
    tiers = []
    for digest in "aaba":
        async with slots.lease(digest, "t") as lease:
            tiers.append(lease.tier)
    assert tiers == ["store", "device", "store", "host"]


async def test_each_resident_is_in_its_fastest_tier() -> None:
    """On the device, or on the host only; what is in neither is no resident."""
    slots = make_slots(FakeLoader(), device_bytes=5, host_bytes=100)
    for digest in ("a", "b"):
        async with slots.lease(digest, "t"):
            pass
    assert [slots.tier(digest) for digest in "abc"] == ["host", "device", None]
    slots.retire("a")
    assert [slots.tier(digest) for digest in "abc"] == [None, "device", None]


async def test_the_least_recently_used_goes_first() -> None:
    """A lease renews the stay of its adapter."""
    loader = FakeLoader()
    slots = make_slots(loader, device_bytes=10)
    for digest in "abad":  # 3 + 4, then 2; b is now the oldest
        async with slots.lease(digest, "t"):
            pass
    async with slots.lease("c", "t"):
        assert {resident.digest for resident in loader.installed} == {"a", "c", "d"}


async def test_what_the_device_can_never_hold_is_refused() -> None:
    """Waiting would not help."""
    with pytest.raises(TooLarge, match="the adapter has 7 bytes; this server keeps 5 on the device"):
        async with make_slots(FakeLoader(), device_bytes=5).lease("e", "t"):
            pass


async def test_a_failed_load_is_tried_again() -> None:
    """A store that was away for a moment does not cost the adapter its life; the failure is counted."""
    loader = FakeLoader(failing={"a"})
    slots = make_slots(loader)
    with pytest.raises(LoadFailed):
        async with slots.lease("a", "t"):
            pass
    (failures,) = slots._metrics.load_failures.collect()
    assert failures.samples[0].value == 1
    loader.failing.clear()
    async with slots.lease("a", "t") as lease:
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
    held, large, small = (Holder(slots, digest, tenant) for digest, tenant in ("ct", "eu", "av"))
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
    held, large, small = (Holder(slots, digest, tenant) for digest, tenant in ("ct", "eu", "av"))
    await settle()
    large.task.cancel()
    await settle()
    assert small.holds
    assert slots.used_bytes == 5 + 3
    for holder in (held, small):
        holder.release.set()
        await holder.task


async def test_a_lease_of_a_deleted_adapter_leaves_its_successor_evictable() -> None:
    """A caller that waited for the deleted one gets it, while the same bytes, published again, are idle."""
    slots = make_slots(FakeLoader(), device_bytes=13)
    first, small, large = (Holder(slots, digest, tenant) for digest, tenant in ("dt", "av", "cv"))
    await settle()
    waiting = Holder(slots, "d", "v")  # its tenant has its share
    await settle()
    slots.retire("d")
    successor = Holder(slots, "d", "u")
    await settle()
    assert (waiting.waits, successor.holds) == (True, True)
    await end([successor, small])
    assert waiting.holds
    await end([first, large, waiting])
    both = [Holder(slots, digest, tenant) for digest, tenant in ("et", "cu")]
    await settle()
    assert [holder.holds for holder in both] == [True, True]
    await end(both, slots)


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
    async with slots.lease("a", "t"):
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
    slots.prefetch("a", "t")
    slots.prefetch("a", "t")
    await settle()
    assert {resident.digest for resident in loader.installed} == {"a"}
    async with slots.lease("a", "t") as lease:
        assert lease.tier == "store"
    async with slots.lease("a", "t") as lease:
        assert lease.tier == "device"
    assert loader.fetches == ["a"]


async def test_what_nobody_leases_evicts_nobody() -> None:
    """A request that is refused costs others nothing; what was fetched for it waits in the host tier."""
    loader = FakeLoader()
    slots = make_slots(loader, device_bytes=5)
    async with slots.lease("b", "t"):
        pass
    slots.prefetch("c", "t")
    await settle()
    assert {resident.digest for resident in loader.installed} == {"b"}
    async with slots.lease("c", "t") as lease:
        assert lease.tier == "host"
    assert loader.fetches == ["b", "c"]


async def test_a_prefetch_that_fails_is_tried_again() -> None:
    """The failure of the prefetch reaches no request; the lease loads again."""
    loader = FakeLoader(failing={"a"})
    slots = make_slots(loader)
    slots.prefetch("a", "t")
    await settle()
    loader.failing.clear()
    async with slots.lease("a", "t") as lease:
        assert lease.resident.digest == "a"


async def test_a_store_that_hangs_holds_nobody_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each hanging load has its own timeout; loads from the host tier wait for none of them."""
    monkeypatch.setattr(fetches_module, "_FETCH_SECONDS", 0.05)
    monkeypatch.setattr(fetches_module, "_MAX_FETCHES", 4)
    loader = FakeLoader(hanging={"a", "b"})
    slots = make_slots(loader, device_bytes=5, host_bytes=100)
    for digest in "cd":  # c is now in the host tier
        async with slots.lease(digest, "t"):
            pass
    hanging = [Holder(slots, digest) for digest in "ab"]
    await settle()
    async with slots.lease("c", "t") as lease:
        assert lease.tier == "host"
    assert all(one.waits for one in hanging)
    async with slots.lease("d", "t") as lease:
        assert lease.resident.digest == "d"
    async with asyncio.timeout(10):
        for one in hanging:
            with pytest.raises(Unavailable, match="the store does not answer"):
                await one.task
    loader.hanging.clear()
    async with asyncio.timeout(10), slots.lease("a", "t") as lease:
        assert lease.tier == "store"


async def test_a_load_waits_for_its_turn_no_longer_than_others_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every turn taken by a load that hangs, the next one comes through once their time is over."""
    monkeypatch.setattr(fetches_module, "_FETCH_SECONDS", 0.05)
    monkeypatch.setattr(fetches_module, "_MAX_FETCHES", 4)
    loader = FakeLoader(hanging={"a", "b", "d"})
    slots = make_slots(loader)
    hanging = [Holder(slots, digest) for digest in "abd"]
    await settle()
    async with asyncio.timeout(10), slots.lease("c", "t") as lease:
        assert lease.resident.digest == "c"
    await asyncio.gather(*(one.task for one in hanging), return_exceptions=True)


async def test_a_load_that_nobody_waits_for_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers who gave up while it stood in line do not cost those behind them a turn."""
    monkeypatch.setattr(fetches_module, "_MAX_FETCHES", 1)
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


async def test_one_tenant_never_leases_the_whole_device() -> None:
    """At most three times what it leaves: the rest of its callers wait for its own leases, and others have theirs at
    once."""
    slots = make_slots(FakeLoader(), device_bytes=100)
    flood = [Holder(slots, f"x{number}") for number in range(20)]
    await settle()
    assert sum(one.holds for one in flood) == 7
    other = [Holder(slots, f"y{number}", "u") for number in range(2)]
    await settle()
    assert all(one.holds for one in other)
    assert (slots.leased_bytes("t"), slots.leased_bytes("u"), slots.used_bytes) == (70, 20, 90)
    await end([*flood, *other])
    assert slots.leased_bytes("t") == 0


async def test_beyond_its_share_a_caller_is_refused_in_time() -> None:
    """With a reason and a time to come back; it leaves nothing behind."""
    slots = make_slots(FakeLoader(), device_bytes=30, host_bytes=0, seconds=0.01)
    held = [Holder(slots, f"x{number}") for number in range(2)]
    await settle()
    words = "10 bytes found no room on the device within 0.01 s: tenant 't' uses 20 bytes, all tenants use 20 of 30"
    with pytest.raises(Unavailable, match=words) as refused:
        async with slots.lease("x2", "t"):
            pass
    assert refused.value.retry_after == 1
    await end(held)
    assert slots.leased_bytes("t") == 0
    async with slots.lease("x2", "t"):
        assert slots.leased_bytes("t") == 10


async def test_one_tenants_cold_adapters_leave_turns_at_the_store() -> None:
    """On a store that hangs one tenant has twelve of sixteen turns, also by loads that are begun ahead."""
    names = [f"x{number}" for number in range(20)]
    loader = FakeLoader(hanging=set(names))
    slots = make_slots(loader, device_bytes=100)
    for name in names:
        slots.prefetch(name, "t")
    flood = [Holder(slots, name) for name in names]
    await settle()
    assert loader.fetches == names[:12]
    async with slots.lease("a", "u") as lease:
        assert lease.tier == "store"
    await end(flood, slots)


async def test_a_turn_at_the_store_comes_in_time_or_is_refused() -> None:
    """What waits behind its own tenant's loads is told so."""
    names = [f"x{number}" for number in range(13)]
    slots = make_slots(FakeLoader(hanging=set(names)), device_bytes=1000, seconds=0.01)
    flood = [Holder(slots, name) for name in names[:-1]]
    await settle()
    words = (
        "turn at the store did not come within 0.01 s: 12 loads of tenant 't' are in progress, and 12 of all tenants"
    )
    with pytest.raises(Unavailable, match=words):
        async with slots.lease(names[-1], "t"):
            pass
    await end(flood, slots)


async def test_a_load_waits_in_the_line_of_each_tenant_that_wants_it() -> None:
    """A public adapter at the end of one tenant's long line comes to the store by the turn of another."""
    names = [f"x{number}" for number in range(20)]
    loader = FakeLoader(hanging=set(names))
    slots = make_slots(loader, device_bytes=100)
    flood = [Holder(slots, name) for name in [*names, "a"]]
    await settle()
    assert flood[-1].waits
    async with slots.lease("a", "u") as lease:
        assert lease.tier == "store"
    await settle()
    assert flood[-1].holds
    await end(flood, slots)


async def test_each_tenant_is_charged_for_a_public_adapter_it_uses() -> None:
    """With all of its bytes, once for any number of leases; on the device its bytes count once."""
    slots = make_slots(FakeLoader())
    holders = [Holder(slots, "b", tenant) for tenant in "ttu"]
    await settle()
    assert (slots.leased_bytes("t"), slots.leased_bytes("u"), slots.used_bytes) == (4, 4, 4)
    await end(holders[:2])
    assert (slots.leased_bytes("t"), slots.leased_bytes("u")) == (0, 4)
    await end(holders)


async def test_leases_without_end_keep_nobody_waiting() -> None:
    """Two tenants whose adapters fill the device renew their leases before the last one ends; a third has its room
    once those that it found have ended, and then they take turns."""
    slots = make_slots(FakeLoader())
    hot = [Holder(slots, digest, tenant) for digest, tenant in ("ct", "bu")]
    await settle()
    third = Holder(slots, "e", "v")
    await settle()
    renewed = [Holder(slots, digest, tenant) for digest, tenant in ("ct", "bu")]
    await settle()
    assert [one.holds for one in (*hot, third, *renewed)] == [True, True, False, False, False]
    await end(hot)
    assert third.holds
    assert sum(one.holds for one in renewed) == 0
    await end([third])
    assert all(one.holds for one in renewed)
    await end(renewed)


async def test_waiting_tenants_take_turns_by_weight() -> None:
    """In bytes: of 1 and 2, the second has twice as many of the rooms that become free, however long the line."""
    order: list[str] = []

    async def use(tenant: str, number: int) -> None:
        async with slots.lease(f"{tenant}{number}", tenant):
            order.append(tenant)

    slots = make_slots(FakeLoader(), device_bytes=10, host_bytes=1000)
    held = Holder(slots, "x", "v")
    await settle()
    async with asyncio.TaskGroup() as group:
        for number in range(9):
            group.create_task(use("t", number))
        await settle()
        for number in range(9):
            group.create_task(use("u", number))
        await settle()
        held.release.set()
    assert order[:9].count("u") in (5, 6, 7)
    await held.task


async def test_who_gives_up_as_the_grant_comes_gives_it_back() -> None:
    """Both in one turn of the loop."""
    slots = make_slots(FakeLoader(), device_bytes=10)
    held, waits = Holder(slots, "x"), Holder(slots, "y", "u")
    await settle()
    held.release.set()
    while not slots.leased_bytes("u"):  # noqa: ASYNC110 - it is to stop in the very turn of the grant
        await asyncio.sleep(0)
    assert waits.waits
    waits.task.cancel()
    await settle()
    assert slots.leased_bytes("u") == 0
    async with asyncio.timeout(10), slots.lease("x", "t"):
        assert slots.used_bytes == 10


async def test_loads_begun_ahead_pass_nobody_who_waits() -> None:
    """Room that somebody waits for is not free."""
    slots = make_slots(FakeLoader())
    held = [Holder(slots, digest, tenant) for digest, tenant in ("ct", "du")]
    waits = Holder(slots, "e", "v")
    await settle()
    slots.prefetch("a", "t")
    await settle()
    assert slots.used_bytes == 5 + 2
    await end([held[0]])
    await settle()
    assert slots.used_bytes == 2 + 7
    await end([held[1], waits])


async def test_gauges_tell_what_the_device_holds() -> None:
    """After loads, an eviction and a deletion under a lease."""
    metrics = Metrics()
    slots: Slots = Slots(FakeLoader(), MemoryBudget(10, 0), metrics, WEIGHTS.__getitem__)

    def gauges() -> tuple[float, float]:
        adapters, nbytes = metrics.adapters.labels("device"), metrics.adapter_bytes.labels("device")
        return adapters._value.get(), nbytes._value.get()

    for digest in "abc":  # 3 + 4, then 5 in place of the first
        async with slots.lease(digest, "t"):
            pass
    assert gauges() == (2, 9)
    async with slots.lease("b", "t"):
        slots.retire("b")
        assert gauges() == (2, 9)
    assert gauges() == (1, 5)


@pytest.mark.parametrize("given", [False, True])
async def test_what_is_deleted_while_it_loads_does_not_come_back(given: bool) -> None:
    """Neither the load nor an upload keeps it in the host tier: the next request reads the store."""
    loader = FakeLoader()
    slots = make_slots(loader)

    async def use() -> str:
        async with slots.lease("a", "t", FakeArtifact("a", 3) if given else None) as lease:
            return lease.tier

    first = asyncio.ensure_future(use())
    await asyncio.sleep(0)
    slots.retire("a")
    await first
    await settle()
    async with slots.lease("a", "t") as lease:
        assert lease.tier == "store"
    assert loader.fetches[-1:] == ["a"]
