"""How much may be in progress."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_client.errors import QueueFull, TooLarge
from peltier_server.fairness.shared_bound import Held, SharedBound, is_fair, max_alone


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


@given(limit=st.integers(40, 1000), requests=st.lists(st.integers(1, 200), min_size=50, max_size=50))
def test_floods_leave_room_for_the_next(limit: int, requests: list[int]) -> None:
    """Whoever is let in leaves a third of what it has to others, whatever five tenants send; at the end nothing is
    left over."""
    bound, held, holders = SharedBound(limit, "bytes"), dict.fromkeys(range(5), 0), list[Held]()
    for number, amount in enumerate(requests):
        holder = Held(bound, str(number % 5))
        try:
            holder.grow(amount)
        except (QueueFull, TooLarge):
            continue
        holders.append(holder)
        held[number % 5] += amount
        assert bound.total == sum(held.values())
        assert 0 <= held[number % 5] <= 3 * (limit - bound.total)
    for holder in holders:
        holder.end()
    assert bound.total == 0
    assert not bound._shares._held


def test_each_bound_says_what_it_is() -> None:
    bound = SharedBound(400, "inputs")
    with pytest.raises(TooLarge, match="has 301 inputs; at most 300 of one tenant may be in progress, so that others "):
        bound.check_size(301)
    with bound.hold("a", 300), bound.hold("b", 70):
        with (
            pytest.raises(QueueFull, match=r"^370 inputs are in progress of at most 400; 31 more do not fit$"),
            bound.hold("c", 31),
        ):
            pass
        with (
            pytest.raises(QueueFull, match=r"^300 inputs of tenant 'a' are in progress; 1 more would leave 29 of 400 "),
            bound.hold("a", 1),
        ):
            pass
    with bound.hold("a", 300) as held:
        held.grow(200)
        assert bound.total == 300
    assert bound.total == 0
