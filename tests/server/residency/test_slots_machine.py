"""Both tiers, for any sequence of leases, releases, pins, cancellations, failures and deletions."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from peltier_client.errors import StorageFull, TooLarge
from peltier_server.residency.slots import Slots

from tests.server.residency.fake_loader import (
    DEVICE_BYTES,
    HOST_BYTES,
    SIZES,
    TENANTS,
    FakeLoader,
    FakeResident,
    Holder,
    Pinner,
    make_slots,
    settle,
)

ANY_TENANT = st.sampled_from(TENANTS)


class SlotsMachine(RuleBasedStateMachine):
    """Rules run until the loop is quiet, so that every invariant is about a settled state."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.loader = FakeLoader()
        self.slots = self.loop.run_until_complete(self._make())
        self.holders: list[Holder] = []
        self.retired: WeakSet[FakeResident] = WeakSet()
        # The pins after the last rule that nobody has ended since.
        self.kept: set[str] = set()

    async def _make(self) -> Slots:
        return make_slots(self.loader)

    @contextmanager
    def settling(self) -> Iterator[None]:
        yield
        self.loop.run_until_complete(settle())
        # A refusal by a pin, or of one, is for this moment only, and its traceback would go on naming what it held.
        self.holders = [one for one in self.holders if not self._is_over(one)]

    def _is_over(self, holder: Holder) -> bool:
        """Whether it has pinned, or was refused for the sake of pins; it may fail for no other reason than its load."""
        if not holder.task.done() or holder.task.cancelled():
            return False
        match holder.task.exception():
            case None:
                return isinstance(holder, Pinner)
            case TooLarge():
                assert SIZES[holder.digest] > DEVICE_BYTES - self.pinned_bytes
            case StorageFull():
                assert isinstance(holder, Pinner)
            case _:
                assert holder.digest in self.loader.failing
                return False
        return True

    @rule(wanted=st.lists(st.tuples(st.sampled_from(sorted(SIZES)), ANY_TENANT), min_size=1, max_size=4))
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

    @rule(digest=st.sampled_from(sorted(SIZES)), tenant=ANY_TENANT)
    def pin(self, digest: str, tenant: str) -> None:
        async def act() -> None:
            self.holders.append(Pinner(self.slots, digest, tenant))

        with self.settling():
            self.loop.run_until_complete(act())

    @rule(digest=st.sampled_from(sorted(SIZES)))
    def unpin(self, digest: str) -> None:
        async def act() -> None:
            self.kept.discard(digest)
            self.slots.unpin(digest)

        with self.settling():
            self.loop.run_until_complete(act())

    @rule(digest=st.sampled_from(sorted(SIZES)), tenant=ANY_TENANT)
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
            self.kept.discard(digest)
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
        assert self.slots.device.used_bytes <= DEVICE_BYTES
        assert self.loader.held_bytes <= DEVICE_BYTES

    @invariant()
    def a_pin_stays_until_it_is_ended(self) -> None:
        assert self.kept <= self.slots.device.pinned
        self.kept = self.slots.device.pinned
        assert self.kept <= {resident.digest for resident in self.loader.installed}

    @invariant()
    def pins_leave_half_of_the_device(self) -> None:
        assert self.pinned_bytes <= DEVICE_BYTES / 2

    @invariant()
    def the_host_tier_is_never_overfull(self) -> None:
        assert self.slots._host.nbytes <= HOST_BYTES

    @property
    def pinned_bytes(self) -> int:
        return sum(SIZES[digest] for digest in self.slots.device.pinned)

    @invariant()
    def room_is_for_what_is_there(self) -> None:
        held = {holder.resident for holder in self.holders if holder.holds}
        assert sum(resident.nbytes for resident in held) <= self.slots.device.used_bytes <= self.loader.held_bytes

    @invariant()
    def each_adapter_is_loaded_or_loading(self) -> None:
        loaded, loading = list(self.slots.device.loaded()), list(self.slots.loading())
        held = {one.digest for one in self.holders if one.holds}
        deleted = {one.resident for one in self.holders if one.holds and self._holds_deleted(one)}
        assert held <= set(loaded[: len(held) + len(deleted | set(self.retired))])
        assert set(loading) <= {one.digest for one in self.holders if one.waits}
        assert self.slots.num_loading == len(loading)

    @invariant()
    def a_tenant_is_charged_for_what_it_holds(self) -> None:
        for tenant in TENANTS:
            assert self.slots.device.leased_bytes(tenant) == sum(one.nbytes for one in self.charged_to(tenant))

    @invariant()
    def who_waits_waits_for_a_lease(self) -> None:
        """Its own tenant's, if that has its share; else for room, which the first of those who wait for it gets."""
        rest = DEVICE_BYTES - self.pinned_bytes - sum(resident.nbytes for resident in self.charged_to(*TENANTS))
        could_go = {tenant: self._verdicts(tenant, rest) for tenant in TENANTS}
        if not any("no room" in verdicts for verdicts in could_go.values()):
            assert not any(verdicts == {"may go"} for verdicts in could_go.values())

    def _verdicts(self, tenant: str, rest: int) -> set[str]:
        held = self.charged_to(tenant)
        found = set()
        for holder in self.holders:
            if holder.waits and holder.tenant == tenant:
                if holder.digest in self.slots.device.pinned and not holder.wants_deleted:
                    found.add("may go")
                    continue
                there = {one.digest for one in self.holders if one.holds and not self._holds_deleted(one)}
                room = 0 if holder.digest in there and not holder.wants_deleted else SIZES[holder.digest]
                charge = sum(one.nbytes for one in held) + SIZES[holder.digest]
                within = not held or charge <= 3 * (rest - room)
                found.add("over share" if not within else "may go" if room <= rest else "no room")
        return found

    def _holds_deleted(self, holder: Holder) -> bool:
        """Whether it holds a copy that was deleted. Who waited for one while it was deleted may have got either."""
        entry = self.slots._entries.get(holder.digest)
        return (
            entry is None
            or entry.installing is None
            or not entry.loaded
            or entry.installing.result() != holder.resident
        )

    def charged_to(self, *tenants: str) -> set[FakeResident]:
        """What they hold, without what is pinned."""
        held = (one for one in self.holders if one.holds and one.tenant in tenants)
        return {one.resident for one in held if one.digest not in self.slots.device.pinned or self._holds_deleted(one)}

    def teardown(self) -> None:
        try:
            self.loop.run_until_complete(asyncio.wait_for(self._end(), 60))
        finally:
            self.loop.close()

    async def _end(self) -> None:
        for holder in self.holders:
            holder.release.set()
        await asyncio.gather(*(holder.task for holder in self.holders), return_exceptions=True)
        await settle()
        assert not any(map(self.slots.device.leased_bytes, TENANTS))
        assert not self.slots._turns.waiting
        assert not self.slots._fetches._turns.waiting
        await self.slots.close()


TestSlots = SlotsMachine.TestCase
TestSlots.settings = settings(stateful_step_count=40)
