"""Room on the device: who waits gets it in order and in turn, and no tenant takes all of it."""

import asyncio

import pytest
from peltier_client.errors import Unavailable

from tests.server.residency.fake_loader import FakeLoader, Holder, end, make_slots, settle


async def test_loads_get_their_room_in_the_order_they_asked() -> None:
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


async def test_one_tenant_never_leases_the_whole_device() -> None:
    """It leases at most three times the memory that it leaves free. Its other callers wait for its own leases, and
    other tenants get theirs at once."""
    slots = make_slots(FakeLoader(), device_bytes=100)
    flood = [Holder(slots, f"x{number}") for number in range(20)]
    await settle()
    assert sum(one.holds for one in flood) == 7
    other = [Holder(slots, f"y{number}", "u") for number in range(2)]
    await settle()
    assert all(one.holds for one in other)
    assert (slots.device.leased_bytes("t"), slots.device.leased_bytes("u"), slots.device.used_bytes) == (70, 20, 90)
    await end([*flood, *other])
    assert slots.device.leased_bytes("t") == 0


async def test_beyond_its_share_a_caller_is_refused_in_time() -> None:
    """The refusal has a reason and a Retry-After, and the caller is charged for nothing."""
    slots = make_slots(FakeLoader(), device_bytes=30, host_bytes=0, seconds=0.01)
    held = [Holder(slots, f"x{number}") for number in range(2)]
    await settle()
    words = "10 bytes found no room on the device within 0.01 s: tenant 't' uses 20 bytes, all tenants use 20 of 30"
    with pytest.raises(Unavailable, match=words) as refused:
        async with slots.lease("x2", "t"):
            pass
    assert refused.value.retry_after == 1
    await end(held)
    assert slots.device.leased_bytes("t") == 0
    async with slots.lease("x2", "t"):
        assert slots.device.leased_bytes("t") == 10


async def test_leases_without_end_keep_nobody_waiting() -> None:
    """Two tenants whose adapters fill the device renew their leases without end. A third gets memory when the leases
    that it found have ended, and then all take turns."""
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


async def test_waiting_tenants_take_turns() -> None:
    """The second tenant gets as many adapters as the first, although the first has asked before."""
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
    assert order[:8].count("u") == 4
    await held.task


async def test_who_gives_up_as_the_grant_comes_gives_it_back() -> None:
    """The grant and the cancellation happen in one turn of the event loop."""
    slots = make_slots(FakeLoader(), device_bytes=10)
    held, waits = Holder(slots, "x"), Holder(slots, "y", "u")
    await settle()
    held.release.set()
    while not slots.device.leased_bytes("u"):  # noqa: ASYNC110 - it is to stop in the very turn of the grant
        await asyncio.sleep(0)
    assert waits.waits
    waits.task.cancel()
    await settle()
    assert slots.device.leased_bytes("u") == 0
    async with asyncio.timeout(60), slots.lease("x", "t"):
        assert slots.device.used_bytes == 10


async def test_loads_begun_ahead_pass_nobody_who_waits() -> None:
    slots = make_slots(FakeLoader())
    held = [Holder(slots, digest, tenant) for digest, tenant in ("ct", "du")]
    waits = Holder(slots, "e", "v")
    await settle()
    slots.prefetch("a", "t")
    await settle()
    assert slots.device.used_bytes == 5 + 2
    await end([held[0]])
    await settle()
    assert slots.device.used_bytes == 2 + 7
    await end([held[1], waits])
