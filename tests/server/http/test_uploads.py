"""Uploads wait for their turn."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from peltier_client.errors import QueueFull
from peltier_server.http.uploads import MAX_RECEIVED_AT_ONCE, MAX_RECEIVED_OF_ONE, UploadTurns


async def test_so_many_are_received_and_no_more() -> None:
    """The next one is told to come later, and is served once another has gone."""
    intake = UploadTurns(50, patience_seconds=0.01)
    async with AsyncExitStack() as stack:
        for number in range(MAX_RECEIVED_AT_ONCE):
            await stack.enter_async_context(intake.receive(f"tenant-{number}"))
        with pytest.raises(QueueFull) as caught:
            async with intake.receive("one-more"):
                pass
        assert caught.value.retry_after == 1.0
    async with intake.receive("one-more"):
        pass


async def test_no_tenant_takes_all_places() -> None:
    """An upload of another tenant is received at once, beside any number of slow and waiting uploads of one tenant."""
    intake, received = UploadTurns(50, patience_seconds=3600), 0

    async def drip() -> None:
        nonlocal received
        async with intake.receive("a"):
            received += 1
            await asyncio.Event().wait()

    dripping = [asyncio.create_task(drip()) for _ in range(2 * MAX_RECEIVED_AT_ONCE)]
    await asyncio.sleep(0)  # each has run as far as it can
    async with intake.receive("b"):
        assert received == MAX_RECEIVED_OF_ONE
    for task in dripping:
        task.cancel()
    await asyncio.gather(*dripping, return_exceptions=True)
    async with intake.receive("a"):
        pass


async def test_bytes_in_memory_never_exceed_the_limit() -> None:
    """Small ones side by side, a large one alone, and none is overtaken for ever."""
    intake, now, most, done = UploadTurns(50, patience_seconds=3600), 0, 0, []

    async def read(size: int) -> None:
        nonlocal now, most
        async with intake.read(size):
            now, most = now + size, max(most, now + size)
            await asyncio.sleep(0.001)
            now -= size
            done.append(size)

    await asyncio.gather(*(read(size) for size in (40, 40, 90, 10, 10, 60, 100, 5)))
    assert sorted(done) == [5, 10, 10, 40, 40, 60, 90, 100]
    assert 80 <= most <= 100


async def test_what_is_larger_than_all_room_has_it_alone() -> None:
    intake = UploadTurns(50, patience_seconds=3600)
    async with intake.read(1000):
        pass


async def test_a_caller_who_gives_up_frees_its_place() -> None:
    """In the middle of a turn, and in the middle of waiting for one."""
    intake, reading = UploadTurns(50, patience_seconds=3600), asyncio.Event()

    async def stay() -> None:
        async with intake.receive("a"), intake.read(80):
            reading.set()
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(stay()) for _ in range(3)]
    await reading.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with intake.read(100):
        pass
