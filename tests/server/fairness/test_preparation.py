"""Places that are taken several at a time."""

import asyncio
from itertools import repeat

import pytest
from peltier_server.fairness.preparation import FairTurns, Room

COST = 100

NUM_PLACES = 256


def make_turns(num_places: int = 1, **weights: float) -> FairTurns:
    """Places for tenants with these weights, or 1."""
    return FairTurns(num_places, COST, lambda tenant: weights.get(tenant, 1.0))


async def settle() -> None:
    """Lets every task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_newcomer_waits_for_one_piece_however_many_wait() -> None:
    turns, served = make_turns(), list[str]()

    async def work(tenant: str) -> None:
        async with turns.turn(tenant, COST):
            served.append(tenant)
            await asyncio.sleep(0)

    await turns.take("flood", COST)
    async with asyncio.TaskGroup() as group:
        for tenant in [*repeat("flood", 100), "victim"]:
            group.create_task(work(tenant))
        await settle()
        assert turns.num_waiting == 101
        turns.give()
    assert served.index("victim") <= 1


async def test_places_are_shared_by_weight_and_cost() -> None:
    turns, served = make_turns(heavy=2.0), list[str]()

    async def work(tenant: str, cost: int) -> None:
        async with turns.turn(tenant, cost):
            served.append(tenant)

    await turns.take("nobody", COST)
    async with asyncio.TaskGroup() as group:
        for _ in range(60):
            group.create_task(work("heavy", COST))
            group.create_task(work("light", COST // 2))
            group.create_task(work("light", COST // 2))
        await settle()
        turns.give()
    first = served[:40]
    assert abs(first.count("heavy") - 20) <= 3


async def test_a_tenant_alone_has_all_places() -> None:
    turns = make_turns(2)
    await turns.take("a", COST)
    await turns.take("a", COST)
    third = asyncio.ensure_future(turns.take("a", COST))
    await settle()
    assert not third.done()
    turns.give()
    await third


@pytest.mark.parametrize("granted", [False, True], ids=["waiting", "granted"])
async def test_who_is_cancelled_leaves_no_place_taken(granted: bool) -> None:
    turns = make_turns()
    await turns.take("a", COST)
    gone = asyncio.ensure_future(turns.take("a", COST))
    await settle()
    if granted:
        turns.give()
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    if not granted:
        turns.give()
    assert turns.num_waiting == 0
    async with asyncio.timeout(60):
        await turns.take("b", COST)


@pytest.mark.parametrize(("num_takers", "count"), [(34, 16), (20, 64), (300, 1), (5, 256)])
async def test_all_who_take_several_get_them(num_takers: int, count: int) -> None:
    """For any number of callers: none holds part of its places while another waits for the rest."""
    room = Room(NUM_PLACES)

    async def work() -> None:
        for _ in range(4):
            await room.take(count)
            await asyncio.sleep(0)
            room.give(count)

    takers = [asyncio.ensure_future(work()) for _ in range(num_takers)]
    # Each turn of the loop brings at least one of them further.
    for _ in range(16 * num_takers * count):
        if all(taker.done() for taker in takers):
            break
        await asyncio.sleep(0)
    assert all(taker.done() for taker in takers)


async def test_who_is_cancelled_has_taken_nothing() -> None:
    room = Room(4)
    await room.take(3)
    waiting = [asyncio.ensure_future(room.take(3)) for _ in range(2)]
    await asyncio.sleep(0)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    room.give(3)
    await room.take(4)
