"""Enforces the quotas of tenants: requests and tokens a second, and concurrent requests."""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import lru_cache

from peltier_adapters.errors import AdapterError
from peltier_client.errors import QuotaExceeded, TooLarge, Unavailable
from peltier_client.protocol.administration import MAX_WEIGHT, MIN_WEIGHT, TenantQuotas

from peltier_server import retry_hints
from peltier_server.quotas.rates import Left, Rate, Rates, Taken, Unit

# No tenant can have a name with this.
_BACKGROUND = " (batches)"
_BACKGROUND_SHARE = 0.01


def background_of(tenant: str) -> str:
    """The name under which work of a tenant is queued that nobody waits for. It has a small weight, so everybody's live
    work goes first, and passes are as short as they are for several tenants."""
    return f"{tenant}{_BACKGROUND}"


class QuotaEnforcer:
    """Counts what tenants use. `quotas_of` returns the quotas of a tenant. Without quotas, only concurrent requests
    are counted.
    """

    def __init__(self, rates: Rates, quotas_of: Callable[[str], TenantQuotas]) -> None:
        self.rates = rates
        self.in_flight: dict[str, int] = {}
        self.quotas_of = quotas_of

    def weight(self, tenant: str) -> float:
        """The weight of the tenant's share of a busy server, relative to other tenants; that of its background work is
        a hundredth of it. Safe to call from any thread.
        """
        owner = tenant.removesuffix(_BACKGROUND)
        # A registry that was restored from a backup may hold any number, and the callers of this method divide by it.
        weight = min(MAX_WEIGHT, max(MIN_WEIGHT, self.quotas_of(owner).weight))
        return weight if owner == tenant else weight * _BACKGROUND_SHARE

    def bounds_storage(self, tenant: str) -> bool:
        """Whether the tenant has a quota of stored bytes or of adapters."""
        quotas = self.quotas_of(tenant)
        return quotas.max_stored_bytes is not None or quotas.max_adapters is not None

    def slot(self, tenant: str) -> "QuotaSlot":
        """The slot of one request of the tenant."""
        return QuotaSlot(self, tenant, self.quotas_of(tenant))

    async def left(self, tenant: str) -> dict[Unit, Left]:
        """What is left of each rate that the tenant has a quota of."""
        quotas = self.quotas_of(tenant)
        rates = (_rate("requests", quotas.requests_per_second), _rate("tokens", quotas.tokens_per_second))
        return {rate.unit: await self.rates.left(rate, tenant) for rate in rates if rate is not None}

    def spend(self, tenant: str, tokens: int) -> AbstractAsyncContextManager[None]:
        """Takes `tokens` for the work in the context. Gives them back if it fails with `Unavailable`, `TooLarge` or
        `AdapterError`.

        Raises `QuotaExceeded` if the tenant has to wait for the tokens, and `TooLarge` if the rate never allows so
        many.
        """
        rate = _rate("tokens", self.quotas_of(tenant).tokens_per_second)
        return nullcontext() if rate is None else self._spend(rate, tenant, tokens)

    @asynccontextmanager
    async def _spend(self, rate: Rate, tenant: str, tokens: int) -> AsyncIterator[None]:
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
        """Takes `tokens` for work without a result, such as looking for an unknown name. Raises `QuotaExceeded` if
        the tenant has too few left.
        """
        rate = _rate("tokens", self.quotas_of(tenant).tokens_per_second)
        if rate is not None and await self.rates.take(rate, tenant, min(tokens, rate.amount)) is None:
            raise QuotaExceeded(
                f"each rejected input costs one token; tenant {tenant!r} has fewer than {tokens} left of {rate}",
                retry_after=float(rate.seconds),
            )


class QuotaSlot:
    """The slot of one request from `enter` to `leave`."""

    def __init__(self, enforcer: QuotaEnforcer, tenant: str, quotas: TenantQuotas) -> None:
        self._enforcer = enforcer
        self._tenant = tenant
        self._max_in_flight = math.inf if quotas.max_concurrent_requests is None else quotas.max_concurrent_requests
        self._requests = _rate("requests", quotas.requests_per_second)
        self._tokens = _rate("tokens", quotas.tokens_per_second)
        self._taken: Taken | None = None

    async def enter(self) -> None:
        """Counts the request. Raises `QuotaExceeded`, and then counts nothing."""
        in_flight = self._enforcer.in_flight
        num_others = in_flight.get(self._tenant, 0)
        if num_others >= self._max_in_flight:
            raise QuotaExceeded(
                f"{num_others} requests of tenant {self._tenant!r} are being answered; "
                f"it may have {self._max_in_flight} at a time",
                retry_after=retry_hints.SOON,
            )
        in_flight[self._tenant] = num_others + 1
        if self._requests is not None:
            try:
                await self._take(self._requests)
            except BaseException:
                self.leave()
                raise

    def leave(self) -> None:
        """Ends the count of a request that has entered."""
        in_flight = self._enforcer.in_flight
        in_flight[self._tenant] -= 1
        if not in_flight[self._tenant]:
            del in_flight[self._tenant]

    async def headers(self, status: int) -> dict[str, str]:
        """What is left of the rates, as headers of the answer; none without rates. Gives the request back to its rate
        if `status` says that the server is too busy.
        """
        held = [rate for rate in (self._requests, self._tokens) if rate is not None]
        if not held:
            return {}
        taken, self._taken = self._taken, None
        # A 429 does not give the request back: a request that exceeds its tokens was read and tokenised, and must have
        # a cost.
        if taken is not None and status == Unavailable.status:
            await self._enforcer.rates.give_back(taken)
        left = [await self._enforcer.rates.left(rate, self._tenant) for rate in held]
        # There are two rates but one set of headers, which describes the rate with the smaller share left.
        scarce = min(left, key=lambda one: one.share)
        return {
            "ratelimit-policy": ", ".join(f'"{rate.unit}";q={rate.amount};w={rate.seconds}' for rate in held),
            "ratelimit-limit": str(scarce.rate.amount),
            "ratelimit-remaining": str(scarce.amount),
            "ratelimit-reset": str(math.ceil(scarce.reset_seconds)),
        }

    async def _take(self, rate: Rate) -> None:
        rates = self._enforcer.rates
        self._taken = await rates.take(rate, self._tenant)
        if self._taken is None:
            left = await rates.left(rate, self._tenant)
            raise QuotaExceeded(f"tenant {self._tenant!r} may send {rate}", retry_after=left.reset_seconds)


@lru_cache(maxsize=4096)
def _rate(unit: Unit, per_second: float | None) -> Rate | None:
    return None if per_second is None else Rate.of(unit, per_second)
