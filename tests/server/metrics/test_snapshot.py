"""Metrics as parts of a snapshot."""

from peltier_server.context import VersionLabels
from peltier_server.metrics import snapshot
from peltier_server.metrics.metrics import Metrics


def test_a_tenant_has_what_each_metric_counts_of_it() -> None:
    """Requests by status, waiting tokens and open requests; 0 where a metric does not know the tenant."""
    metrics = Metrics()
    for tenant, code in (("b", 200), ("b", 200), ("b", 404), ("a", 200)):
        metrics.observe_request(tenant, code, 0.1)
    metrics.tenant_rows.labels("b").inc(7)
    metrics.follow_queue(lambda: {"b": 30, "c": 5}, 100)
    first, second, third = snapshot.tenants(metrics, {"a": 1})
    assert (first.tenant, first.requests, first.rows, first.queued_tokens, first.open_requests) == (
        "a",
        {"200": 1},
        0,
        0,
        1,
    )
    assert (second.tenant, second.requests, second.rows, second.queued_tokens) == ("b", {"200": 2, "404": 1}, 7, 30)
    assert (third.tenant, third.requests, third.tokens, third.queued_tokens) == ("c", {}, 0, 5)


def test_the_times_at_which_counters_began_are_no_counts() -> None:
    """Of a counter and of a gauge, with a label and without."""
    metrics = Metrics()
    assert (snapshot.total(metrics.loads), snapshot.total(metrics.quarantined)) == (0, 0)
    metrics.uploads.labels("created").inc(2)
    metrics.adapters.labels("host").set(3)
    assert (snapshot.counts(metrics.uploads), snapshot.counts(metrics.adapters)) == ({"created": 2}, {"host": 3})


def test_a_tier_that_nothing_entered_has_its_bound() -> None:
    """And 0 adapters, bytes and evictions."""
    metrics = Metrics()
    metrics.adapter_bytes.labels("host").set(64)
    metrics.evictions.labels("host").inc()
    device, host = snapshot.tiers(metrics, {"device": 10, "host": 100})
    assert (device.tier, device.adapters, device.bytes, device.max_bytes, device.evictions) == ("device", 0, 0, 10, 0)
    assert (host.tier, host.bytes, host.max_bytes, host.evictions) == ("host", 64, 100, 1)


def test_a_version_has_its_requests_and_their_latency() -> None:
    """At most as many versions as asked, the busiest first."""
    metrics = Metrics()
    for version, times in (("1", 1), ("2", 3)):
        for _ in range(times):
            metrics.versions.observe(VersionLabels("a", "sst2", version), 200, 0.1)
    (busiest,) = snapshot.versions(metrics, 1)
    assert (busiest.adapter, busiest.version, busiest.requests) == ("sst2", "2", {"200": 3})
    assert (sum(busiest.seconds.counts), len(busiest.seconds.counts)) == (3, len(busiest.seconds.bounds) + 1)
