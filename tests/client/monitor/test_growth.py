"""Counters and distributions between two readings."""

from peltier_client.monitor.growth import Growth, added
from peltier_client.protocol import Distribution


def values(*counts: int, total: float) -> Distribution:
    return Distribution(bounds=[1.0, 2.0], counts=list(counts), total=total)


def test_what_came_between() -> None:
    """Its count and mean, and quantiles interpolated between bounds, at most the last one."""
    growth = Growth.between(values(4, 0, 1, total=9), values(4, 10, 2, total=33))
    assert (growth.count, growth.mean) == (11, 24 / 11)
    assert growth.quantile(0.5) == 1.55
    assert growth.quantile(0.99) == 2.0


def test_nothing_came() -> None:
    """Then there is no mean and no quantile."""
    growth = Growth.between(values(4, 0, 1, total=9), values(4, 0, 1, total=9))
    assert (growth.count, growth.mean, growth.quantile(0.5)) == (0, None, None)


def test_counts_that_began_again() -> None:
    """A series that ended and came back counts from 0; so does a new one."""
    assert Growth.between(values(4, 0, 1, total=9), values(3, 5, 1, total=12)).count == 9
    assert Growth.between(None, values(3, 5, 1, total=12)).count == 9
    assert added({"200": 10, "404": 3}, {"200": 12, "404": 1, "503": 2}) == {"200": 2, "404": 1, "503": 2}
    assert added(None, {"200": 12}) == {"200": 12}
