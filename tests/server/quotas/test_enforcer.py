"""The enforcement of one tenant's quotas."""

from collections.abc import Callable

import pytest
from peltier_client.errors import QueueFull, QuotaExceeded, TooLarge
from peltier_client.protocol.administration import TenantQuotas
from peltier_server.quotas.enforcer import QuotaEnforcer, background_of
from peltier_server.quotas.rates import Rates

from tests.support.rate_windows import stand_still


@pytest.fixture(autouse=True)
def _windows(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_still(monkeypatch)


def make_enforcer(**quotas: float) -> QuotaEnforcer:
    return QuotaEnforcer(Rates(), lambda _: TenantQuotas(**quotas))


async def visit(enforcer: QuotaEnforcer, status: int = 200) -> dict[str, str]:
    slot = enforcer.slot("a")
    await slot.enter()
    headers = await slot.headers(status)
    slot.leave()
    return headers


def test_background_work_has_a_hundredth_of_its_tenants_weight() -> None:
    """So live work of all tenants goes first."""
    enforcer = make_enforcer(weight=4)
    assert [enforcer.weight(one) for one in ("a", background_of("a"))] == [4, 0.04]


async def test_without_quotas_nothing_is_said() -> None:
    assert await visit(make_enforcer()) == {}


async def test_requests_a_second() -> None:
    enforcer = make_enforcer(requests_per_second=0.02)
    first, second = await visit(enforcer), await visit(enforcer)
    assert first["ratelimit-policy"] == '"requests";q=2;w=100'
    assert (first["ratelimit-limit"], first["ratelimit-remaining"]) == ("2", "1")
    assert second["ratelimit-remaining"] == "0"
    assert 0 < int(second["ratelimit-reset"]) <= 100
    with pytest.raises(QuotaExceeded, match="tenant 'a' may send 2 requests in 100 s") as caught:
        await visit(enforcer)
    assert caught.value.retry_after is not None


async def test_a_request_that_the_server_is_too_busy_for_costs_nothing() -> None:
    """Its tenant could do nothing about it."""
    enforcer = make_enforcer(requests_per_second=0.02)
    for _ in range(5):
        assert (await visit(enforcer, 503))["ratelimit-remaining"] == "2"


@pytest.mark.parametrize("status", [422, 429])
async def test_a_request_that_its_tenant_is_refused_counts(status: int) -> None:
    """It was read and tokenised, so a tenant without tokens left must not send them for nothing."""
    enforcer = make_enforcer(requests_per_second=0.02)
    assert (await visit(enforcer, status))["ratelimit-remaining"] == "1"


async def test_requests_at_a_time() -> None:
    enforcer = make_enforcer(max_concurrent_requests=2)
    entered = [enforcer.slot("a") for _ in range(2)]
    for one in entered:
        await one.enter()
    with pytest.raises(QuotaExceeded, match="2 requests of tenant 'a' are being answered; it may have 2 at a time"):
        await visit(enforcer)
    for one in entered:
        one.leave()
    assert not enforcer.in_flight


async def test_a_request_over_its_rate_is_not_in_flight() -> None:
    enforcer = make_enforcer(requests_per_second=0.01, max_concurrent_requests=1)
    await visit(enforcer)
    for _ in range(3):
        with pytest.raises(QuotaExceeded, match="may send"):
            await visit(enforcer)
    assert not enforcer.in_flight


async def test_tokens_a_second() -> None:
    """Exact to the token; who asks for more at once than there ever is does not wait for it."""
    enforcer = make_enforcer(tokens_per_second=0.1)
    async with enforcer.spend("a", 1):
        pass
    with pytest.raises(QuotaExceeded, match="costs 1 tokens, which are not left of the 1 tokens in 10 s") as caught:
        async with enforcer.spend("a", 1):
            pass
    assert caught.value.retry_after == 10
    with pytest.raises(TooLarge, match="costs 2 tokens; tenant 'a' may use 1 tokens in 10 s"):
        async with enforcer.spend("a", 2):
            pass


async def test_tokens_that_were_not_computed_are_given_back() -> None:
    enforcer = make_enforcer(tokens_per_second=1.1)
    for _ in range(3):
        with pytest.raises(QueueFull):
            async with enforcer.spend("a", 11):
                raise QueueFull("full")
    with pytest.raises(ValueError, match="bad"):
        async with enforcer.spend("a", 11):
            raise ValueError("bad")
    with pytest.raises(QuotaExceeded):
        async with enforcer.spend("a", 11):
            pass


async def test_headers_are_about_what_runs_out_first() -> None:
    enforcer = make_enforcer(requests_per_second=10, tokens_per_second=0.1)
    async with enforcer.spend("a", 1):
        pass
    headers = await visit(enforcer)
    assert headers["ratelimit-policy"] == '"requests";q=10;w=1, "tokens";q=1;w=10'
    assert (headers["ratelimit-limit"], headers["ratelimit-remaining"]) == ("1", "0")


async def test_new_quotas_hold_at_once() -> None:
    quotas = {"a": TenantQuotas()}
    look_up: Callable[[str], TenantQuotas] = quotas.__getitem__
    enforcer = QuotaEnforcer(Rates(), look_up)
    assert await visit(enforcer) == {}
    quotas["a"] = TenantQuotas(max_concurrent_requests=0)
    with pytest.raises(QuotaExceeded, match="it may have 0 at a time"):
        await visit(enforcer)


@pytest.mark.parametrize(
    ("quotas", "bounded"), [({}, False), ({"requests_per_second": 1}, False), ({"max_adapters": 1}, True)]
)
def test_only_quotas_of_storage_bound_it(quotas: dict[str, int], bounded: bool) -> None:
    """An upload of a tenant without them need not be counted before it is published."""
    enforcer = QuotaEnforcer(Rates(), lambda _: TenantQuotas(**quotas))
    assert enforcer.bounds_storage("default") is bounded
