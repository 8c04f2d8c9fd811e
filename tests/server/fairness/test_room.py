"""Places that are taken several at a time."""

import asyncio

import pytest
from peltier_server.fairness.room import Room

NUM_PLACES = 256


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
    """Whether it was next in line or further back."""
    room = Room(4)
    await room.take(3)
    waiting = [asyncio.ensure_future(room.take(3)) for _ in range(2)]
    await asyncio.sleep(0)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    room.give(3)
    await room.take(4)
