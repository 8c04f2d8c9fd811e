"""The bound of a batch, with one tenant and with several."""

import pytest
from peltier_server.queue import batch_limit
from peltier_server.queue.batch_limit import MIN_SHARED_COST, SHARED_SECONDS, BatchBounds, BatchLimit

BOUNDS = BatchBounds(max_rows=128, max_tokens=4096, max_shared_seconds=0.05)
SECONDS_PER_TOKEN = 1e-4


class Clock:
    """A clock that stands until it is told to go on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(batch_limit, "time", clock)
    return clock


def test_one_tenant_alone_has_whole_batches(clock: Clock):
    """However much it asks."""
    limit = BatchLimit(BOUNDS)
    for _ in range(3):
        limit.asked("a")
    assert limit.cost(SECONDS_PER_TOKEN) == BOUNDS.max_tokens


def test_tenants_who_share_have_batches_bounded_in_time(clock: Clock):
    """As many tokens as are expected to take the bound."""
    limit = BatchLimit(BOUNDS)
    limit.asked("a")
    limit.asked("b")
    limit.asked("b")
    assert limit.cost(SECONDS_PER_TOKEN) == 500


def test_a_fast_device_keeps_its_whole_batches(clock: Clock):
    """They take less than the bound."""
    limit = BatchLimit(BOUNDS)
    limit.asked("a")
    limit.asked("b")
    assert limit.cost(1e-6) == BOUNDS.max_tokens


def test_a_slow_device_keeps_batches_that_are_worth_it(clock: Clock):
    """Smaller ones would spend their time on being batches."""
    limit = BatchLimit(BOUNDS)
    limit.asked("a")
    limit.asked("b")
    assert limit.cost(1.0) == MIN_SHARED_COST


def test_batches_are_whole_before_anything_is_measured(clock: Clock):
    """The time of a token is not known then."""
    limit = BatchLimit(BOUNDS)
    limit.asked("a")
    limit.asked("b")
    assert limit.cost(0.0) == BOUNDS.max_tokens


def test_who_has_left_shares_no_more(clock: Clock):
    """Some seconds after its last request the other has whole batches again."""
    limit = BatchLimit(BOUNDS)
    for tenant in ("a", "b", "a"):
        limit.asked(tenant)
    clock.now += SHARED_SECONDS + 1
    limit.asked("a")
    assert limit.cost(SECONDS_PER_TOKEN) == BOUNDS.max_tokens
