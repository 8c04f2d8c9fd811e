"""Histograms count as the library's own do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_server.metrics.histogram import Histogram, Series
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Histogram as Theirs

BOUNDS = (0.5, 1, 2.5)


def page(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return sorted(line for line in lines if "_created" not in line)


@given(observed=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([0.1, 0.5, 0.6, 1, 2.5, 3.0]))))
def test_the_page_is_that_of_the_library(observed: list[tuple[str, float]]):
    """The same names, labels, bounds, counts and sums; a value equal to a bound is within it."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    own = Histogram("x_seconds", "Some seconds", BOUNDS, ("who",), ours)
    other = Theirs("x_seconds", "Some seconds", ("who",), buckets=BOUNDS, registry=theirs)
    for who, value in observed:
        own.labels(who).observe(value)
        other.labels(who).observe(value)
    assert page(ours) == page(theirs)


def test_a_series_without_labels_is_there_from_the_start():
    """And one with labels ends when it is removed."""
    registry = CollectorRegistry()
    Histogram("a_seconds", "Some seconds", BOUNDS, (), registry)
    labelled = Histogram("b_seconds", "Some seconds", BOUNDS, ("who",), registry)
    labelled.labels("me").observe(1)
    labelled.remove("me")
    assert registry.get_sample_value("a_seconds_count") == 0
    assert registry.get_sample_value("b_seconds_count", {"who": "me"}) is None


@pytest.mark.parametrize(
    ("observed", "share", "expected"),
    [((), 0.5, 0.0), ((0.2, 0.2), 0.5, 0.25), ((0.2, 0.7, 0.9, 2), 0.5, 0.75), ((9, 9), 0.99, 2.5)],
)
def test_a_quantile_is_interpolated_in_its_bucket(observed: tuple[float, ...], share: float, expected: float):
    """As Prometheus does it: evenly within a bucket, and the last bound for all that is above."""
    series = Series(BOUNDS)
    for value in observed:
        series.observe(value)
    assert series.quantile(share) == expected
