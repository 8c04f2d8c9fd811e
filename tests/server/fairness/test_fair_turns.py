"""Turns between tenants: who waits, for how many pieces of others, and what a cancelled turn leaves behind."""

import asyncio
from itertools import repeat

import pytest
from peltier_server.fairness.fair_turns import FairTurns

COST = 100


def make_turns(num_places: int = 1, **weights: float) -> FairTurns:
    """Places for tenants with these weights, or 1."""
    return FairTurns(num_places, COST, lambda tenant: weights.get(tenant, 1.0))


async def settle() -> None:
    """Lets every task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_newcomer_waits_for_one_piece_however_many_wait() -> None:
    """A hundred pieces of another tenant stand before it."""
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
    """Twice the weight gets twice the cost, in pieces of any cost."""
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
    """And no more pieces at a time than there are."""
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
    """Whether it still waits or has just got its place."""
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
    async with asyncio.timeout(5):
        await turns.take("b", COST)
