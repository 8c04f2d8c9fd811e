"""The counts of rates, which are the same in memory and in Redis."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from peltier_server.quotas.rates import Rate, Rates, Unit
from peltier_server.settings import SettingsError

from tests.support import redis_server
from tests.support.redis_server import Redis

# Tests with Redis are slow: it is a program. Those of counts run in memory, too.
# In memory a window begins at a multiple of its seconds, so a short one may end within a test.
TEN = Rate("tokens", 10, 100_000)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    with redis_server.running(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis may take its time."""
    monkeypatch.setattr("peltier_server.quotas.rates._TIMEOUT_SECONDS", 60)


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.slow)])
async def rates(request: pytest.FixtureRequest) -> AsyncIterator[Rates]:
    made = Rates("memory://" if request.param == "memory" else request.getfixturevalue("redis").url)
    yield made
    await made.close()


@pytest.fixture
def let_pass(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Awaitable[None]]:
    """`await let_pass(seconds)`: this time passes. In memory it is the test that moves the clock; Redis has its own."""
    if request.node.callspec.params["rates"] == "redis":
        return asyncio.sleep
    move = move_clock(monkeypatch, "limits.aio.storage.memory.time", "peltier_server.quotas.rates.time")

    async def pass_by(seconds: float) -> None:
        move(seconds)

    return pass_by


def move_clock(monkeypatch: pytest.MonkeyPatch, *modules: str) -> Callable[[float], None]:
    """Stops the clock that these modules read; what is returned moves it."""
    now = [time.time()]
    clock = SimpleNamespace(time=lambda: now[0], monotonic=lambda: now[0])
    for name in modules:
        monkeypatch.setattr(name, clock)
    return lambda seconds: now.append(now.pop() + seconds)


@pytest.mark.parametrize(
    ("unit", "per_second", "amount", "seconds"),
    [
        ("requests", 5, 5, 1), ("requests", 1, 1, 1), ("requests", 2.5, 5, 2), ("requests", 0.1, 1, 10),
        ("requests", 0.25, 1, 4), ("requests", 1000.0, 1000, 1), ("requests", 1 / 3, 1, 3),
        ("requests", 33.333, 100, 3), ("requests", 0.02, 2, 100), ("requests", 0.003, 3, 1000),
        ("requests", 1e-9, 1, 1000), ("tokens", 1000.0, 10_000, 10), ("tokens", 33.333, 333, 10),
    ],
)  # fmt: skip
def test_a_rate_is_whole_units_in_a_window(unit: Unit, per_second: float, amount: int, seconds: int) -> None:
    """The nearest one of at most ten seconds, so that not all comes at once; longer for slow rates. Of tokens a request
    may be larger than what one second allows."""
    assert Rate.of(unit, per_second) == Rate(unit, amount, seconds)


async def test_no_more_is_taken_than_there_is(rates: Rates) -> None:
    """What would be too much takes nothing, so that less may still be had."""
    assert await rates.take(TEN, "a", 8)
    assert not await rates.take(TEN, "a", 3)
    assert await rates.take(TEN, "a", 2)
    assert not await rates.take(TEN, "a", 1)


async def test_tenants_are_counted_apart(rates: Rates) -> None:
    assert await rates.take(TEN, "b", 10)
    assert await rates.take(TEN, "c", 10)
    assert await rates.take(Rate("requests", 10, 100_000), "b", 10)


async def test_what_is_given_back_can_be_taken_again(rates: Rates) -> None:
    assert await rates.take(TEN, "d", 6)
    taken = await rates.take(TEN, "d", 4)
    assert taken is not None
    await rates.give_back(taken)
    assert (await rates.left(TEN, "d")).amount == 4
    assert await rates.take(TEN, "d", 4)
    assert not await rates.take(TEN, "d", 1)


async def test_what_was_taken_in_an_earlier_window_is_not_given_back(rates, let_pass):
    """Else more than the rate could be had in this one."""
    rate = Rate("requests", 100, 1)
    taken = await rates.take(rate, "j", 100)
    assert taken is not None
    await let_pass(2.01)
    await rates.give_back(taken)
    began = time.monotonic()
    assert await rates.take(rate, "j", 100)
    left = (await rates.left(rate, "j")).amount
    # As many as time alone has made free.
    assert left <= 100 * (time.monotonic() - began) + 1


async def test_what_is_left_is_known(rates: Rates) -> None:
    assert (await rates.left(TEN, "e")).share == 1
    await rates.take(TEN, "e", 7)
    left = await rates.left(TEN, "e")
    assert left.amount == 3
    assert 0 < left.reset_seconds <= TEN.seconds


async def test_a_window_passes(rates: Rates, let_pass: Callable[[float], Awaitable[None]]) -> None:
    rate = Rate("requests", 2, 1)
    assert await rates.take(rate, "f", 2)
    while await rates.take(rate, "f"):
        pass
    await let_pass(2.01)
    assert await rates.take(rate, "f", 2)


@pytest.mark.slow
async def test_replicas_count_together(redis: Redis) -> None:
    one, other = Rates(redis.url), Rates(redis.url)
    assert await one.take(TEN, "g", 6)
    assert not await other.take(TEN, "g", 6)
    assert (await other.left(TEN, "g")).amount == 4
    await one.close()
    await other.close()


@pytest.mark.slow
async def test_without_redis_each_replica_counts_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage neither stops a tenant nor sets it free, and ends by itself."""
    move = move_clock(monkeypatch, "peltier_server.quotas.rates.time")
    with redis_server.running(tmp_path) as redis:
        rates = Rates(redis.url)
        assert await rates.take(TEN, "h", 10)
        redis.stop()
        assert await rates.take(TEN, "h", 10)
        assert not await rates.take(TEN, "h", 1)
        redis.start()
        move(1.01)
        assert await rates.take(TEN, "h", 10)
        await rates.close()


@pytest.mark.slow
async def test_what_was_taken_elsewhere_is_not_given_back_here(tmp_path: Path) -> None:
    """What Redis counted is no business of this replica's own count, nor of a Redis that has forgotten it."""
    with redis_server.running(tmp_path) as redis:
        rates = Rates(redis.url)
        taken = await rates.take(TEN, "k", 10)
        assert taken is not None
        redis.stop()
        await rates.give_back(taken)
        assert await rates.take(TEN, "k", 10)
        assert not await rates.take(TEN, "k", 1)
        await rates.close()


@pytest.mark.slow
async def test_a_redis_that_hangs_is_waited_for_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("peltier_server.quotas.rates._PAUSE_SECONDS", 3600)
    monkeypatch.setattr("peltier_server.quotas.rates._TIMEOUT_SECONDS", 0.5)
    with redis_server.running(tmp_path) as redis:
        rates = Rates(redis.url)
        await rates.take(TEN, "i", 1)
        redis.hang()
        for _ in range(10):
            assert await rates.take(TEN, "i", 1)
        assert caplog.text.count("the rate store does not answer") == 1
        await rates.close()


def test_a_store_that_cannot_be_meant_is_named() -> None:
    """One sentence, at start-up, without the password that may be in it."""
    with pytest.raises(SettingsError, match="'rate_store' is not of the form redis://") as caught:
        Rates("redis://:hunter/2@127.0.0.1:nothing")
    assert "hunter" not in str(caught.value)
