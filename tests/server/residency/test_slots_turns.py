"""Turns at the store: slow loads hold nobody up, and no tenant takes all turns."""

import asyncio

import pytest
from peltier_client.errors import Unavailable
from peltier_server.residency import fetches as fetches_module

from tests.server.residency.fake_loader import FakeLoader, Holder, end, make_slots, settle


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Timeout]:
    """The timeout of each fetch that has begun."""
    begun, timeout = list[asyncio.Timeout](), asyncio.timeout

    def begin(seconds: float) -> asyncio.Timeout:
        clock = timeout(seconds)
        if seconds == fetches_module._FETCH_SECONDS:
            begun.append(clock)
        return clock

    monkeypatch.setattr(asyncio, "timeout", begin)
    return begun


def run_out(clocks: list[asyncio.Timeout]) -> None:
    for clock in clocks:
        clock.reschedule(0)


async def test_a_store_that_hangs_holds_nobody_up_for_ever(monkeypatch, clocks):
    """Each hanging load has its own timeout; loads from the host tier do not wait for it."""
    monkeypatch.setattr(fetches_module, "_MAX_FETCHES", 4)
    loader = FakeLoader(hanging={"a", "b"})
    slots = make_slots(loader, device_bytes=5, host_bytes=100)
    for digest in "cd":  # c is now in the host tier
        async with slots.lease(digest, "t"):
            pass
    hanging = [Holder(slots, digest) for digest in "ab"]
    await settle()
    their_clocks = clocks[-2:]
    async with slots.lease("c", "t") as lease:
        assert lease.tier == "host"
    assert all(one.waits for one in hanging)
    async with slots.lease("d", "t") as lease:
        assert lease.resident.digest == "d"
    run_out(their_clocks)
    async with asyncio.timeout(60):
        for one in hanging:
            with pytest.raises(Unavailable, match="the store does not answer"):
                await one.task
    loader.hanging.clear()
    async with asyncio.timeout(60), slots.lease("a", "t") as lease:
        assert lease.tier == "store"


async def test_a_load_waits_for_its_turn_no_longer_than_others_hang(monkeypatch, clocks):
    """If hanging loads have all turns, the next load begins after their timeout."""
    monkeypatch.setattr(fetches_module, "_MAX_FETCHES", 4)
    loader = FakeLoader(hanging={"a", "b", "d"})
    slots = make_slots(loader)
    hanging = [Holder(slots, digest) for digest in "abd"]
    next_one = Holder(slots, "c")
    await settle()
    assert "c" not in loader.fetches
    run_out(clocks)
    async with asyncio.timeout(60), slots.lease("c", "t") as lease:
        assert lease.resident.digest == "c"
    next_one.release.set()
    await asyncio.gather(*(one.task for one in [*hanging, next_one]), return_exceptions=True)


async def test_a_load_that_nobody_waits_for_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_one_tenants_cold_adapters_leave_turns_at_the_store() -> None:
    """On a store that hangs one tenant has twelve of the sixteen turns, prefetches included."""
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
    """The refusal names the number of loads in progress, of the tenant and of all tenants."""
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
    """A public adapter at the end of one tenant's queue is fetched in the turn of another tenant."""
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
