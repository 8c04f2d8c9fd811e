"""Lets a tenant's requests in as far as its quotas allow: requests and tokens a second, requests at a time."""

import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Self

from peltier_adapters.errors import AdapterError
from peltier_client.errors import QuotaExceeded, TooLarge, Unavailable
from peltier_store.registry import MAX_WEIGHT, MIN_WEIGHT, Quotas
from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

from peltier_server import retry_hints
from peltier_server.quotas.rates import Rate, Rates, Taken, Unit


class QuotaEnforcer:
    """Counts what tenants use. `quotas_of` says what they may; without quotas nothing is counted but who is in."""

    def __init__(self, rates: Rates, quotas_of: Callable[[str], Quotas]) -> None:
        self.rates = rates
        self.in_flight = Counter[str]()
        self._quotas_of = quotas_of

    def weight(self, tenant: str) -> float:
        """What the tenant's share of a busy server is, beside others' weights. Any thread may ask."""
        # A registry that was filled from a backup may hold anything, and whoever asks divides by it.
        return min(MAX_WEIGHT, max(MIN_WEIGHT, self._quotas_of(tenant).weight))

    def bounds_storage(self, tenant: str) -> bool:
        """Whether there is anything that the tenant may store no more of."""
        quotas = self._quotas_of(tenant)
        return quotas.max_stored_bytes is not None or quotas.max_adapters is not None

    def slot(self, tenant: str) -> "QuotaSlot":
        """One request of the tenant, to be entered."""
        return QuotaSlot(self, tenant, self._quotas_of(tenant))

    @asynccontextmanager
    async def spend(self, tenant: str, tokens: int) -> AsyncIterator[None]:
        """Accounts `tokens` for what is computed meanwhile; gives them back if it never is.

        Raises `QuotaExceeded` where the tenant has to wait for them, `TooLarge` where waiting would not help.
        """
        rate = _rate("tokens", self._quotas_of(tenant).tokens_per_second)
        if rate is None:
            yield
            return
        if tokens > rate.amount:
            raise TooLarge(f"the request costs {tokens} tokens; tenant {tenant!r} may use {rate}")
        taken = await self.rates.take(rate, tenant, tokens)
        if taken is None:
            raise QuotaExceeded(
                f"the request costs {tokens} tokens, which are not left of the {rate} that tenant {tenant!r} may use",
                retry_after=float(rate.seconds),
            )
        try:
            yield
        except (Unavailable, TooLarge, AdapterError):
            await self.rates.give_back(taken)
            raise

    async def charge(self, tenant: str, tokens: int) -> None:
        """Accounts `tokens` for work that came to nothing, such as looking for an unknown name. Raises `QuotaExceeded`
        where they are not left."""
        rate = _rate("tokens", self._quotas_of(tenant).tokens_per_second)
        if rate is not None and await self.rates.take(rate, tenant, min(tokens, rate.amount)) is None:
            raise QuotaExceeded(
                f"what cannot be answered costs a token each, and {tokens} are not left of the {rate} that tenant "
                f"{tenant!r} may use",
                retry_after=float(rate.seconds),
            )


class QuotaSlot:
    """One request while it is served. Entering raises `QuotaExceeded`."""

    def __init__(self, enforcer: QuotaEnforcer, tenant: str, quotas: Quotas) -> None:
        self._enforcer = enforcer
        self._tenant = tenant
        self._max_in_flight = math.inf if quotas.max_concurrent_requests is None else quotas.max_concurrent_requests
        self._requests = _rate("requests", quotas.requests_per_second)
        self._tokens = _rate("tokens", quotas.tokens_per_second)
        self._taken: Taken | None = None

    async def __aenter__(self) -> Self:
        in_flight = self._enforcer.in_flight
        if in_flight[self._tenant] >= self._max_in_flight:
            raise QuotaExceeded(
                f"{in_flight[self._tenant]} requests of tenant {self._tenant!r} are being answered; "
                f"it may have {self._max_in_flight} at a time",
                retry_after=retry_hints.SOON,
            )
        in_flight[self._tenant] += 1
        try:
            await self._take()
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    def with_ratelimit_headers(self, send: Send) -> Send:
        """`send`, which also says what is left; a request that the server is too busy for is given back."""
        if self._requests is None and self._tokens is None:
            return send

        async def with_ratelimit_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                await self._settle(message["status"])
                MutableHeaders(scope=message).update(await self._headers())
            await send(message)

        return with_ratelimit_headers

    async def _take(self) -> None:
        rate, rates = self._requests, self._enforcer.rates
        if rate is None:
            return
        self._taken = await rates.take(rate, self._tenant)
        if self._taken is None:
            left = await rates.left(rate, self._tenant)
            raise QuotaExceeded(f"tenant {self._tenant!r} may send {rate}", retry_after=left.reset_seconds)

    async def _settle(self, status: int) -> None:
        taken, self._taken = self._taken, None
        # Not with 429: a request over its tokens was read and tokenised, and must not be free.
        if taken is not None and status == Unavailable.status:
            await self._enforcer.rates.give_back(taken)

    async def _headers(self) -> dict[str, str]:
        held = [rate for rate in (self._requests, self._tokens) if rate is not None]
        left = [await self._enforcer.rates.left(rate, self._tenant) for rate in held]
        # There are two rates and one set of headers, which is about what runs out first.
        scarce = min(left, key=lambda one: one.share)
        return {
            "ratelimit-policy": ", ".join(f'"{rate.unit}";q={rate.amount};w={rate.seconds}' for rate in held),
            "ratelimit-limit": str(scarce.rate.amount),
            "ratelimit-remaining": str(scarce.amount),
            "ratelimit-reset": str(math.ceil(scarce.reset_seconds)),
        }

    def _leave(self) -> None:
        in_flight = self._enforcer.in_flight
        in_flight[self._tenant] -= 1
        if not in_flight[self._tenant]:
            del in_flight[self._tenant]


@lru_cache(maxsize=4096)
def _rate(unit: Unit, per_second: float | None) -> Rate | None:
    return None if per_second is None else Rate.of(unit, per_second)
