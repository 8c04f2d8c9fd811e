"""The numbers of a load, from two pages of metrics."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from peltier_client import Client
from peltier_client.errors import UnexpectedAnswer
from peltier_client.monitor.load import LoadSnapshot, Reading, create_load, read_load
from peltier_client.monitor.page import Distribution, Page
from peltier_client.monitor.screen import line

from tests.client.conftest import Answer, LittleServer

BEFORE = """
# HELP peltier_ready 1 while /ready is 200, else 0
peltier_ready 1.0
process_start_time_seconds 1000.0
peltier_requests_total{code="200",tenant="a"} 100.0
peltier_request_seconds_bucket{le="0.01"} 100.0
peltier_request_seconds_bucket{le="+Inf"} 100.0
peltier_request_seconds_sum 1.0
peltier_adapter_requests_total{tenant="a",adapter="sst2",version="3",code="200"} 10.0
peltier_adapter_request_seconds_bucket{tenant="a",adapter="sst2",version="3",le="0.01"} 10.0
peltier_adapter_request_seconds_bucket{tenant="a",adapter="sst2",version="3",le="0.1"} 10.0
peltier_adapter_request_seconds_bucket{tenant="a",adapter="sst2",version="3",le="+Inf"} 10.0
peltier_tenant_served_tokens_total{tenant="a"} 1000.0
"""
AFTER = """
peltier_ready 1.0
process_start_time_seconds 1000.0
peltier_requests_total{code="200",tenant="a"} 120.0
peltier_requests_total{code="404",tenant="a"} 2.0
peltier_requests_total{code="200",tenant="b"} 60.0
peltier_request_seconds_bucket{le="0.01"} 180.0
peltier_request_seconds_bucket{le="+Inf"} 180.0
peltier_request_seconds_sum 1.5
peltier_adapter_requests_total{tenant="a",adapter="sst2",version="3",code="200"} 20.0
peltier_adapter_requests_total{tenant="a",adapter="sst2",version="3",code="424"} 4.0
peltier_adapter_requests_total{tenant="b",adapter="nli",version="3",code="200"} 30.0
peltier_adapter_request_seconds_bucket{tenant="a",adapter="sst2",version="3",le="0.01"} 10.0
peltier_adapter_request_seconds_bucket{tenant="a",adapter="sst2",version="3",le="0.1"} 24.0
peltier_adapter_request_seconds_bucket{tenant="a",adapter="sst2",version="3",le="+Inf"} 24.0
peltier_adapter_request_seconds_bucket{tenant="b",adapter="nli",version="3",le="0.01"} 30.0
peltier_adapter_request_seconds_bucket{tenant="b",adapter="nli",version="3",le="0.1"} 30.0
peltier_adapter_request_seconds_bucket{tenant="b",adapter="nli",version="3",le="+Inf"} 30.0
peltier_tenant_served_tokens_total{tenant="a"} 1500.0
peltier_tenant_served_tokens_total{tenant="b"} 100.0
peltier_queue_tokens{tenant="a"} 7.0
peltier_queue_tokens{tenant="b"} 57.0
peltier_queue_max_tokens 256.0
peltier_queue_seconds_bucket{le="0.01"} 8.0
peltier_queue_seconds_bucket{le="+Inf"} 8.0
peltier_queue_seconds_sum 0.04
peltier_batch_rows_bucket{le="64.0"} 2.0
peltier_batch_rows_bucket{le="+Inf"} 2.0
peltier_batch_rows_sum 32.0
peltier_batch_tokens_bucket{le="+Inf"} 2.0
peltier_batch_tokens_sum 2048.0
peltier_batch_max_tokens 4096.0
peltier_batch_adapters_bucket{le="+Inf"} 2.0
peltier_batch_adapters_sum 6.0
peltier_compute_seconds_sum 1.0
peltier_decode_step_seconds_sum 0.5
peltier_generated_tokens_total 50.0
peltier_decode_rows 2.0
peltier_adapters{tier="device"} 2.0
peltier_adapter_bytes{tier="device"} 100.0
peltier_adapter_max_bytes{tier="device"} 1e+03
peltier_adapter_evictions_total{tier="device"} 4.0
peltier_adapter_cache_requests_total{result="device"} 20.0
peltier_adapter_cache_requests_total{result="store"} 6.0
peltier_adapter_loads_total 6.0
peltier_quarantined_adapters{tenant="default",adapter="sst2",version="3"} 1.0
peltier_quarantined_adapters{tenant="a",adapter="nli",version="2"} 1.0
peltier_quarantined_adapters{tenant="other",adapter="other",version="other"} 0.0
"""
AT = datetime(2026, 11, 21, tzinfo=UTC)


def between(before: str, after: str) -> LoadSnapshot:
    """The load of two seconds."""
    return create_load(Reading(AT, Page.parse(before)), Reading(AT + timedelta(seconds=2), Page.parse(after)))


def test_rates_of_an_interval() -> None:
    """Counters by second, what is now as it is; the busiest tenants and adapters come first."""
    found = between(BEFORE, AFTER)
    assert (found.seconds, found.state, found.started_at) == (2, "ready", datetime.fromtimestamp(1000, UTC))
    assert (found.requests.per_second, found.requests.errors_per_second, found.requests.p50_ms) == (41, 1, 5)
    assert (found.queue.tokens, found.queue.wait_ms, found.queue.fill, found.queue.tokens_per_second) == (
        64,
        5,
        0.25,
        300,
    )
    assert (found.batches.rows, found.batches.adapters, found.batches.fill) == (16, 3, 0.25)
    assert (found.runner.busy, found.runner.generated_tokens_per_second, found.runner.texts_in_progress) == (
        0.75,
        25,
        2,
    )
    assert [(one.tenant, one.requests_per_second, one.queue_tokens) for one in found.tenants] == [
        ("b", 30, 57),
        ("a", 11, 7),
    ]
    assert [(one.tenant, one.task, one.requests_per_second, one.errors_per_second) for one in found.adapters] == [
        ("b", "nli@3", 15, 0),
        ("a", "sst2@3", 7, 2),
    ]
    assert (found.adapters[0].p50_ms, found.adapters[1].p50_ms) == (5, 55)
    (device,) = found.tiers
    assert (device.hits_per_second, device.evictions_per_second, device.max_bytes) == (10, 2, 1000)
    assert (found.store_hits_per_second, found.loads_per_second, found.quarantined) == (3, 3, 2)
    assert found.quarantined_versions == ["a:nli@2", "sst2@3"]


def replicas(*names: str) -> str:
    """The page of replicas, each of which has counted what `AFTER` has."""
    pages = (AFTER.replace("{", f'{{replica="{name}",').replace(" ", f'{{replica="{name}"}} ') for name in names)
    return re.sub(r'"\}\{replica="\w+"\}', '"}', "".join(pages))


OTHER_PROCESS = AFTER.replace("seconds 1000.0", "seconds 1001.0").replace("} 60.0", "} 5100000.0")


@pytest.mark.parametrize(
    ("before", "after"),
    [(BEFORE, OTHER_PROCESS), (OTHER_PROCESS, BEFORE), (replicas("one"), replicas("one", "two"))],
    ids=["started", "failed-over", "joined"],
)
def test_what_other_processes_have_counted_is_no_load(server: LittleServer, before: str, after: str) -> None:
    """The interval in which a server is started, a balancer goes on to another or a replica joins has no snapshot, and
    the next one has the rates of its time."""
    server.planned.extend(Answer(200, page.encode()) for page in (before, after, after))
    with Client(server.url) as client:
        found = next(read_load(client, bool))
    assert isinstance(found, LoadSnapshot)
    assert (found.requests.per_second, list(server.planned)) == (0, [])


def test_versions_without_series_of_their_own_are_all_others() -> None:
    """No task has that name."""
    others = AFTER.replace('tenant="b",adapter="nli",version="3"', 'tenant="other",adapter="other",version="other"')
    found = between(BEFORE, others)
    assert [one.name for one in found.adapters] == ["all others", "a:sst2@3"]
    assert "busiest all others 15.0/s, a:sst2@3 7.0/s" in line(found)


def test_a_series_that_began_again_counts_from_zero() -> None:
    """All buckets of a histogram too, although some are larger than before."""
    before = BEFORE.replace('3",le="0.01"} 10.0', '3",le="0.01"} 0.0').replace('le="+Inf"} 10.0', 'le="+Inf"} 90.0')
    assert between(before, AFTER).adapters[1].p50_ms == pytest.approx(22.857)


def test_replicas_are_shown_together() -> None:
    """Sums of their counts, and how many are ready."""
    found = between("", replicas("one", "two").replace('ready{replica="two"} 1.0', 'ready{replica="two"} 0.0'))
    assert (found.state, found.requests.per_second, found.runner.busy) == ("1 of 2 replicas ready", 182, 0.75)
    assert (found.batches.fill, found.tiers[0].max_bytes) == (0.25, 2000)


@pytest.mark.parametrize("server_page", ["<html></html>", "up 1.0\n", "<html>\nplease wait\n</html>"])
def test_another_page_is_refused(server: LittleServer, server_page: str) -> None:
    """It is not shown as an idle server."""
    server.planned.append(Answer(200, server_page.encode()))
    with (
        Client(server.url) as client,
        pytest.raises(UnexpectedAnswer, match=r"has no peltier_ready|no page of metrics: .*'wait'"),
    ):
        next(read_load(client, bool))


def test_labels_have_any_characters() -> None:
    """Quotes and braces of a value do not end it."""
    ((labels, value),) = Page.parse(r'a{b="x\"}, c=",d="{}"} 2.5').values("a")
    assert (set(labels), value) == ({"b", "d"}, 2.5)


def values(*counts: int, total: float) -> Distribution:
    return Distribution([1.0, 2.0], counts, total)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (values(0, 10, 1, total=24), {"count": 11, "mean": 24 / 11, 0.5: 1.55, 0.99: 2.0}),
        (values(0, 0, 0, total=0), {"count": 0, "mean": None, 0.5: None}),
    ],
    ids=["some", "none"],
)
def test_quantiles(found: Distribution, expected: Mapping[object, object]) -> None:
    """Interpolated between bounds, at most the last one; of nothing there are none."""
    got = {"count": found.count, "mean": found.mean, 0.5: found.quantile(0.5), 0.99: found.quantile(0.99)}
    assert {name: got[name] for name in expected} == expected
