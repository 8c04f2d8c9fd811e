"""Counts what each tenant has used of its rates, in sliding windows: in memory or, for several replicas, in Redis."""

import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from importlib.util import find_spec
from typing import Literal, TypeVar, cast

from limits import RateLimitItem, RateLimitItemPerSecond
from limits.aio.storage import MemoryStorage, RedisStorage, SlidingWindowCounterSupport
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import ConfigurationError

from peltier_server.settings import SettingsError

logger = logging.getLogger(__name__)

T = TypeVar("T")
Unit = Literal["requests", "tokens"]

# The longest window of a rate. In a longer one a tenant could use everything at once and then nothing for minutes.
# Token rates always use the longest window, because tokens come in large amounts: a window of one second would refuse
# every larger request for ever.
_LONGEST_SECONDS = 10
# The windows of rates that allow less than one unit in the longest window.
_SLOW_SECONDS = (100, 1000)
_TIMEOUT_SECONDS = 0.5
# The precision of the beginning of a window.
_CLOCK_SECONDS = 0.01
# How long a replica does not ask the shared store again after it failed to answer.
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Rate:
    """At most `amount` units in any `seconds`."""

    unit: Unit
    amount: int
    seconds: int

    @classmethod
    def of(cls, unit: Unit, per_second: float) -> "Rate":
        """The nearest rate of whole units in at most 10 seconds: 2.5 requests a second are 5 in 2 seconds.

        Below one in 10 seconds it is that of 100 or 1000 seconds, and one in 1000 seconds at least.
        """
        seconds = _window_seconds(unit, per_second)
        return cls(unit, max(1, round(per_second * seconds)), seconds)

    def __str__(self) -> str:
        return f"{self.amount} {self.unit} in {self.seconds} s"

    @cached_property
    def item(self) -> RateLimitItem:
        """The rate in the form of the `limits` library, which counts each rate separately."""
        return RateLimitItemPerSecond(self.amount, self.seconds, namespace=self.unit)


@dataclass(frozen=True)
class Left:
    """The units that are left of a rate now, and the seconds until there are more."""

    rate: Rate
    amount: int
    reset_seconds: float

    @property
    def share(self) -> float:
        """The fraction that is left: 1 is the whole rate, 0 is nothing."""
        return self.amount / self.rate.amount


@dataclass(frozen=True)
class Taken:
    """One `take`: the units, the counter that they came from, and the time in seconds of `time.monotonic`."""

    rate: Rate
    tenant: str
    cost: int
    limiter: SlidingWindowCounterRateLimiter
    at: float


class Rates:
    """Counts what tenants use. `url` is memory:// for one replica, or redis://… for several that count together.

    While Redis does not answer, each replica counts for itself, so that tenants are neither blocked nor unlimited.
    """

    def __init__(self, url: str = "memory://") -> None:
        self._own = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._shared = None if url == "memory://" else _RedisLimiter(url)
        self._away_until = -math.inf

    async def take(self, rate: Rate, tenant: str, cost: int = 1) -> Taken | None:
        """Takes `cost` units. Returns None, and takes nothing, if fewer are left."""

        async def hit(limiter: SlidingWindowCounterRateLimiter) -> Taken | None:
            done = await limiter.hit(rate.item, tenant, cost=cost)
            return Taken(rate, tenant, cost, limiter, time.monotonic()) if done else None

        return await self._ask(hit)

    async def give_back(self, taken: Taken) -> None:
        """Reverts a `take` if all of its units still count. Units that were taken in a window that has ended stay
        taken.
        """

        async def hit(limiter: SlidingWindowCounterRateLimiter) -> None:
            if limiter is taken.limiter and await _is_counted(taken):
                await limiter.hit(taken.rate.item, taken.tenant, cost=-taken.cost)

        await self._ask(hit)

    async def left(self, rate: Rate, tenant: str) -> Left:
        """The units that the tenant may still take."""
        reset_time, remaining = await self._ask(lambda limiter: limiter.get_window_stats(rate.item, tenant))
        seconds = reset_time - time.time()
        if seconds <= 0 and remaining < rate.amount:
            # In its first moment the library reports a window as already over.
            seconds = float(rate.seconds)
        return Left(rate, min(remaining, rate.amount), max(0.0, seconds))

    async def close(self) -> None:
        """Closes the connections to Redis."""
        if self._shared is not None:
            await self._shared.close()

    async def _ask(self, question: Callable[[SlidingWindowCounterRateLimiter], Awaitable[T]]) -> T:
        if self._shared is not None and time.monotonic() >= self._away_until:
            try:
                return await question(self._shared)
            except self._shared.failures as error:
                self._away_until = time.monotonic() + _PAUSE_SECONDS
                logger.warning("the rate store does not answer, so this replica counts for itself: %s", error)
        return await question(self._own)


class _RedisLimiter(SlidingWindowCounterRateLimiter):
    def __init__(self, url: str) -> None:
        try:
            self._redis = RedisStorage(
                f"async+{url}",
                implementation="redispy",
                key_prefix="peltier",
                socket_timeout=_TIMEOUT_SECONDS,
                socket_connect_timeout=_TIMEOUT_SECONDS,
            )
        except (ConfigurationError, ValueError):
            # The error shows neither the URL nor the library's message, because a password may be anywhere in them.
            if find_spec("redis") is None:
                raise SettingsError("setting 'rate_store' needs redis: pip install \"peltier[redis]\"") from None
            sentence = "setting 'rate_store' is not of the form redis://[USER:PASSWORD@]HOST[:PORT][/NUMBER]"
            raise SettingsError(sentence) from None
        super().__init__(self._redis)
        known = self._redis.base_exceptions
        self.failures: tuple[type[Exception], ...] = (*(known if isinstance(known, tuple) else (known,)), OSError)

    async def close(self) -> None:
        await self._redis.bridge.get_connection().aclose()  # type: ignore[attr-defined]


async def _is_counted(taken: Taken) -> bool:
    # Without this check, units would be subtracted from a count that does not contain them, and the tenant could exceed
    # the rate.
    item = taken.rate.item
    storage = cast(SlidingWindowCounterSupport, taken.limiter.storage)
    _, _, count, left_seconds = await storage.get_sliding_window(item.key_for(taken.tenant), item.get_expiry())
    # The library keeps each window for twice its length.
    window_age_seconds = 2 * item.get_expiry() - left_seconds
    return count >= taken.cost and time.monotonic() - taken.at <= window_age_seconds + _CLOCK_SECONDS


def _window_seconds(unit: Unit, per_second: float) -> int:
    if per_second * _LONGEST_SECONDS < 1:
        shorter, longer = _SLOW_SECONDS
        return shorter if _is_whole(per_second * shorter) else longer
    return (
        _LONGEST_SECONDS if unit == "tokens" else Fraction(per_second).limit_denominator(_LONGEST_SECONDS).denominator
    )


def _is_whole(value: float) -> bool:
    return value >= 1 and math.isclose(value, round(value), rel_tol=1e-9)
