"""What the numbers of a snapshot are made of."""

import copy
from typing import Any

from peltier_client.monitor.snapshot import Growth, LoadSnapshot, added, create_snapshot
from peltier_client.protocol import Distribution, LiveSnapshot

from tests.client.conftest import LIVE

BOUNDS = [0.01, 0.1]


def seconds(*counts: int, total: float = 0.0) -> dict[str, Any]:
    return {"bounds": BOUNDS, "counts": list(counts), "total": total}


def tenant(name: str, tokens: int, **requests: int) -> dict[str, Any]:
    answered = {code.removeprefix("_"): count for code, count in requests.items()}
    computed = {"rows": 0, "tokens": tokens, "queued_tokens": 7, "open_requests": 1}
    return {"tenant": name, "requests": answered, **computed}


def adapter(name: str, latencies: dict[str, Any], **requests: int) -> dict[str, Any]:
    answered = {code.removeprefix("_"): count for code, count in requests.items()}
    return {"tenant": "a", "adapter": name, "version": "3", "requests": answered, "seconds": latencies}


BEFORE: dict[str, Any] = {
    **LIVE,
    "seconds": seconds(100, 0, 0),
    "tenants": [tenant("a", 1000, _200=100)],
    "adapters": [adapter("sst2", seconds(10, 0, 0), _200=10)],
}
AFTER: dict[str, Any] = {
    **copy.deepcopy(LIVE),
    "at": "2026-11-21T00:00:12Z",
    "seconds": seconds(180, 0, 0),
    "tenants": [tenant("a", 1500, _200=120, _404=2), tenant("b", 100, _200=60)],
    "adapters": [adapter("sst2", seconds(10, 14, 0), _200=20, _424=4), adapter("nli", seconds(30, 0, 0), _200=30)],
    "queue": {"rows": 3, "tokens": 64, "max_tokens": 256, "seconds": seconds(8, 0, 0, total=0.04)},
    "batches": {
        "rows": {"bounds": [64.0], "counts": [2, 0], "total": 32},
        "tokens": {"bounds": [512.0], "counts": [2, 0], "total": 512},
        "adapters": {"bounds": [64.0], "counts": [2, 0], "total": 6},
        "seconds": seconds(0, 0, 2, total=1.0),
        "max_rows": 64,
        "max_tokens": 4096,
    },
    "texts": {"tokens": 50, "step_seconds": seconds(10, 0, 0, total=0.5), "rows": 2},
    "tiers": [{"tier": "device", "adapters": 2, "bytes": 100, "max_bytes": 1000, "evictions": 4}],
    "lookups": {"device": 20, "store": 6},
    "loads": 6,
    "quarantined": 1,
}


def between(before: dict[str, Any], after: dict[str, Any]) -> LoadSnapshot:
    return create_snapshot(LiveSnapshot.model_validate(before), LiveSnapshot.model_validate(after))


def test_rates_of_an_interval() -> None:
    """Counters by second, what is now as it is; the busiest tenants and adapters come first."""
    found = between(BEFORE, AFTER)
    assert (found.seconds, found.state) == (2, "ready")
    assert (found.requests.per_second, found.requests.errors_per_second, found.requests.p50_ms) == (41, 1, 5)
    assert (found.queue.wait_ms, found.queue.fill, found.queue.tokens_per_second) == (5, 0.25, 300)
    assert (found.batches.rows, found.batches.adapters, found.batches.fill) == (16, 3, 0.25)
    assert (found.runner.busy, found.runner.generated_tokens_per_second, found.runner.texts_in_progress) == (
        0.75,
        25,
        2,
    )
    assert [(one.tenant, one.requests_per_second, one.queue_tokens) for one in found.tenants] == [
        ("b", 30, 7),
        ("a", 11, 7),
    ]
    assert [(one.task, one.requests_per_second, one.errors_per_second) for one in found.adapters] == [
        ("nli@3", 15, 0),
        ("sst2@3", 7, 2),
    ]
    assert found.adapters[1].p99_ms is not None
    assert found.adapters[1].p99_ms > 90
    assert (found.tiers[0].hits_per_second, found.tiers[0].evictions_per_second) == (10, 2)
    assert (found.store_hits_per_second, found.loads_per_second, found.quarantined) == (3, 3, 1)


def test_a_restarted_replica_counts_from_its_start() -> None:
    """Also where a counter is already larger than it was before."""
    restarted = AFTER | {"started_at": "2026-11-21T00:00:11Z"}
    found = between(BEFORE, restarted)
    assert (found.seconds, found.requests.per_second) == (1, 182)


def test_a_replica_that_is_not_ready() -> None:
    """Its reason is its state."""
    assert between(BEFORE, AFTER | {"ready": False, "reason": "it stops"}).state == "it stops"


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
