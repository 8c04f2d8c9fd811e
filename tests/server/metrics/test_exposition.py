"""The page of metrics is the library's."""

import pytest
from peltier_server.metrics.exposition import Exposition
from peltier_server.metrics.series import Histogram
from prometheus_client import CollectorRegistry, Counter, Gauge, PlatformCollector
from prometheus_client.exposition import choose_encoder

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;"
    "q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
ACCEPTS = (
    "",
    "*/*",
    "text/plain;version=0.0.4",
    "text/plain;version=1.0.0;escaping=values",
    "application/openmetrics-text",
    "application/openmetrics-text;version=1.0.0;escaping=dots",
    PROMETHEUS,
)


@pytest.fixture
def registry() -> CollectorRegistry:
    """Each kind of metric that the server has, with labels to escape and values to format."""
    registry = CollectorRegistry()
    PlatformCollector(registry=registry)
    counter = Counter("calls_total", 'Calls, \\ "quoted"\nin two lines', ("zone", "code"), registry=registry)
    counter.labels('a"b\\c\nd', "200").inc(3)
    counter.labels("é", "404").inc(12345678.9)
    Gauge("level", "A level", registry=registry).set(float("inf"))
    series = Histogram("wait_seconds", "A wait", (0.001, 10.0), ("who",), registry).labels("me")
    series.observe(0.5, 3_000_000)
    return registry


@pytest.mark.parametrize("accept", ACCEPTS)
def test_a_page_is_that_of_the_library(registry: CollectorRegistry, accept: str) -> None:
    """To the byte, in every format; also when it is written again."""
    encode, content_type = choose_encoder(accept)
    exposition = Exposition(registry)
    for _ in range(2):
        assert exposition.page(accept) == (encode(registry), content_type)


def test_a_series_that_ends_is_not_remembered(registry: CollectorRegistry) -> None:
    """The memory is that of one page."""
    counter, exposition = Counter("gone", "Ends", ("who",), registry=registry), Exposition(registry)
    counter.labels("me").inc()
    assert b'gone_total{who="me"} 1.0' in exposition.page("")[0]
    counter.remove("me")
    assert b'me"} 1.0\ngone' not in exposition.page("")[0]
    assert not [key for key in exposition._names if key[0] == "gone_total"]
