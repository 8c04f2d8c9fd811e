"""Clients of a server that refuses what is beyond its capacity."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from peltier_client import AsyncClient, Client
from peltier_client.exchange.in_flight import MAX_IN_FLIGHT, AsyncRequestGate, InFlightLimit, is_refusal

CAPACITY = 4
ANSWER = {
    "task": "sst2",
    "adapter": {"tenant": "default", "name": "sst2", "version": 1, "digest": 64 * "0", "preset": "lora"},
    "predictions": [{"label": "positive"}],
    "usage": {"tokens": 1, "truncated_inputs": 0},
    "timings_ms": {"queue": 0.1, "load": 0.0, "compute": 0.1, "total": 0.2},
    "batch": {"rows": 1, "adapters": 1},
}


class Capacity:
    """A server that has room for `CAPACITY` requests, and counts what it refuses."""

    def __init__(self) -> None:
        self.num_here = self.num_refused = 0
        self._lock, self._has_refused, self._round = threading.Lock(), threading.Event(), threading.Barrier(CAPACITY)

    async def answer(self, request: httpx2.Request) -> httpx2.Response:
        """For asynchronous clients."""
        if self._enter():
            return self._refusal()
        await asyncio.sleep(0.001)
        return self._leave()

    def answer_thread(self, request: httpx2.Request) -> httpx2.Response:
        """For threads. The server is full before each answer, and the first wait until one more is refused."""
        if self._enter():
            self._has_refused.set()
            return self._refusal()
        self._round.wait(20)
        assert self._has_refused.wait(60)
        return self._leave()

    def _enter(self) -> bool:
        with self._lock:
            is_full = self.num_here >= CAPACITY
            self.num_refused += is_full
            self.num_here += not is_full
            return is_full

    def _leave(self) -> httpx2.Response:
        with self._lock:
            self.num_here -= 1
        return httpx2.Response(200, json=ANSWER)

    @staticmethod
    def _refusal() -> httpx2.Response:
        body = {"error": {"code": "queue_full", "message": "the queue is full", "request_id": "r"}}
        return httpx2.Response(503, json=body, headers={"retry-after": "0"})


async def test_many_requests_at_once_are_all_answered() -> None:
    """The first ones find the capacity, and few later ones are refused."""
    server = Capacity()
    async with AsyncClient(transport=httpx2.MockTransport(server.answer)) as client:
        found = await asyncio.gather(*(client.predict("sst2", "a") for _ in range(500)))
        assert len(found) == 500
        # All but the capacity at first, and one for each ten rounds: 500 answers are 13 times ten rounds of 4.
        assert server.num_refused <= MAX_IN_FLIGHT - CAPACITY + 13
        assert client._sender._pool.gate.limit.count == 0


def test_threads_share_the_limit() -> None:
    """Of one client."""
    server = Capacity()
    with Client(transport=httpx2.MockTransport(server.answer_thread)) as client, ThreadPoolExecutor(40) as pool:
        found = list(pool.map(lambda _: client.predict("sst2", "a"), range(100)))
        assert len(found) == 100
        assert client._sender._pool.gate.limit.count == 0
        # Each refusal lowers the limit; after one, ten rounds of 4 and ten of 5 raise it by 3 within 90 answers.
        assert client._sender._pool.gate.limit.limit <= CAPACITY + 3
        assert server.num_refused <= 40 - CAPACITY + 3


async def test_a_cancelled_request_gives_its_place_back() -> None:
    """Whether it waits for a place, has just got one, or is in flight."""
    gate = AsyncRequestGate()
    gate.limit.limit = 1
    entered = asyncio.Event()

    async def hold() -> None:
        async with gate.enter():
            entered.set()
            await asyncio.Event().wait()

    in_flight = asyncio.create_task(hold())
    await entered.wait()
    waiting, given = asyncio.create_task(hold()), asyncio.create_task(hold())
    await asyncio.sleep(0)
    waiting.cancel()
    in_flight.cancel()
    await asyncio.wait([waiting, in_flight])
    given.cancel()
    await asyncio.wait([given])
    assert gate.limit.count == 0
    async with asyncio.timeout(60), gate.enter():
        assert gate.limit.count == 1


def test_the_limit_grows_ever_faster_without_refusals() -> None:
    """Ten rounds for each step."""
    limit = InFlightLimit(20)
    limit.count = 5
    limit.end(is_refused=True)
    seen = [limit.limit]
    for _ in range(10_000):
        limit.begin()
        limit.end(is_refused=False)
        if limit.limit != seen[-1]:
            seen.append(limit.limit)
    assert seen == [4, 5, 7, 11, 19, 20]


@pytest.mark.parametrize("is_refused", [False, None])
def test_only_refusals_lower_the_limit(is_refused: bool | None) -> None:
    """Not other answers, and not lost connections."""
    limit = InFlightLimit()
    limit.begin()
    limit.end(is_refused=is_refused)
    assert (limit.limit, limit.count) == (MAX_IN_FLIGHT, 0)


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (503, {}, True),
        (429, {"retry-after": "1"}, True),
        (429, {"retry-after": "60"}, False),
        (429, {}, False),
        (404, {"retry-after": "1"}, False),
        (500, {}, False),
        (200, {}, False),
    ],
)
def test_a_refusal_is_what_a_busy_server_answers(status: int, headers: dict[str, str], expected: bool) -> None:
    """A quota of trainings is not one of requests."""
    assert is_refusal(status, httpx2.Headers(headers)) is expected


def test_one_request_may_always_begin() -> None:
    """Even after a refusal while nothing else was in flight."""
    limit = InFlightLimit()
    limit.begin()
    limit.end(is_refused=True)
    assert limit.limit == 1
    assert limit.has_room
