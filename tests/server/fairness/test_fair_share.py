"""One tenant may have at most three times as much as it leaves free."""

from hypothesis import given
from hypothesis import strategies as st
from peltier_server.fairness.fair_share import is_fair, max_alone


@given(st.integers(0, 1 << 40))
def test_alone_a_tenant_has_three_quarters_and_not_one_more(limit: int) -> None:
    most = max_alone(limit)
    assert is_fair(most, limit - most)
    assert not is_fair(most + 1, limit - most - 1)
    assert 0 <= 3 * limit - 4 * most < 4


@given(st.integers(1, 50), st.integers(1_000, 1_000_000))
def test_some_stays_free_beside_tenants_that_take_all_they_can(num_tenants: int, limit: int) -> None:
    """By turns each takes one unit while it may: a part of 3 n + 1 is left."""
    held = [0] * num_tenants
    step = max(1, limit // 1000)
    growing = True
    while growing:
        growing = False
        for tenant in range(num_tenants):
            if is_fair(held[tenant] + step, limit - sum(held) - step):
                held[tenant] += step
                growing = True
    rest = limit - sum(held)
    assert rest * (3 * num_tenants + 1) >= limit
