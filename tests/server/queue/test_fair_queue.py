"""The bound of the tokens that wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_client.errors import QueueFull, TooLarge
from peltier_server.queue.fair_queue import Admission


@given(max_tokens=st.integers(40, 10_000), requests=st.lists(st.integers(1, 200), min_size=300, max_size=300))
def test_floods_leave_room_for_the_next(max_tokens: int, requests: list[int]) -> None:
    """After each admission a third of that tenant's waiting tokens is still free, for any requests of five tenants."""
    admission, queued = Admission(max_tokens), dict.fromkeys(range(5), 0)
    for number, tokens in enumerate(requests):
        try:
            admission.check(str(number % 5), tokens, waiting=sum(queued.values()), of_tenant=queued[number % 5])
        except (QueueFull, TooLarge):
            continue
        queued[number % 5] += tokens
        rest = max_tokens - sum(queued.values())
        assert 0 <= queued[number % 5] <= 3 * rest


def test_each_bound_says_what_it_is() -> None:
    """Too much at once, too much in all, too much of one."""
    admission = Admission(400)
    with pytest.raises(
        TooLarge, match="costs 301 tokens; at most 300 of one tenant may wait at a time, so that others "
    ):
        admission.check("a", 301, waiting=0, of_tenant=0)
    with pytest.raises(QueueFull, match=r"^390 tokens wait of at most 400; 11 more do not fit$"):
        admission.check("a", 11, waiting=390, of_tenant=0)
    with pytest.raises(
        QueueFull, match=r"^90 tokens of tenant 'a' wait; 10 more would leave 30 of 400 to others, and one "
    ):
        admission.check("a", 10, waiting=360, of_tenant=90)
    admission.check("a", 300, waiting=0, of_tenant=0)
