"""Reads the metrics of a replica as parts of a `LiveSnapshot`."""

from collections import defaultdict
from collections.abc import Mapping

from peltier_client.protocol import Distribution, LiveAdapter, LiveTenant, LiveTexts, LiveTier
from prometheus_client import Counter, Gauge
from prometheus_client.samples import Sample

from peltier_server.metrics.metrics import Metrics
from peltier_server.metrics.series import Series

_COUNTER = "_total"


def total(metric: Counter | Gauge) -> int:
    """The value of a metric without labels."""
    return int(_samples(metric)[0].value)


def counts(metric: Counter | Gauge) -> dict[str, int]:
    """The values of a metric with one label."""
    return {next(iter(one.labels.values())): int(one.value) for one in _samples(metric)}


def distribution(series: Series) -> Distribution:
    """The observations of a series."""
    return Distribution(bounds=list(series.bounds), counts=list(series.counts), total=series.total)


def tenants(metrics: Metrics, open_requests: Mapping[str, int]) -> list[LiveTenant]:
    """What the tenants with a label used, in order of name; `open_requests` is by tenant."""
    requests = _nested_counts(metrics.requests)
    rows, tokens = counts(metrics.tenant_rows), counts(metrics.tenant_tokens)
    queued, answering = metrics.queued_tokens(), metrics.by_label(open_requests)
    names = requests.keys() | queued.keys() | answering.keys()
    return [
        LiveTenant(
            tenant=name,
            requests=requests.get(name, {}),
            rows=rows.get(name, 0),
            tokens=tokens.get(name, 0),
            queued_tokens=queued.get(name, 0),
            open_requests=answering.get(name, 0),
        )
        for name in sorted(names)
    ]


def versions(metrics: Metrics, max_versions: int) -> list[LiveAdapter]:
    """The versions with most requests."""
    return [
        LiveAdapter(**labels._asdict(), requests=dict(requests), seconds=distribution(latency))
        for labels, (requests, latency) in metrics.busiest(max_versions).items()
    ]


def texts(metrics: Metrics) -> LiveTexts:
    """What was generated."""
    return LiveTexts(
        tokens=total(metrics.generated_tokens),
        step_seconds=distribution(metrics.decode_step_seconds),
        rows=total(metrics.decode_rows),
    )


def tiers(metrics: Metrics, max_bytes: Mapping[str, int]) -> list[LiveTier]:
    """The tiers with their bounds."""
    held, taken, evicted = counts(metrics.adapters), counts(metrics.adapter_bytes), counts(metrics.evictions)
    return [
        LiveTier.model_validate(
            {
                "tier": tier,
                "adapters": held.get(tier, 0),
                "bytes": taken.get(tier, 0),
                "max_bytes": bound,
                "evictions": evicted.get(tier, 0),
            }
        )
        for tier, bound in max_bytes.items()
    ]


def _nested_counts(metric: Counter) -> Mapping[str, dict[str, int]]:
    """The values of a metric with two labels: by the second one, for each value of the first."""
    found = defaultdict[str, dict[str, int]](dict)
    for one in _samples(metric):
        first, second = one.labels.values()
        found[first][second] = int(one.value)
    return found


def _samples(metric: Counter | Gauge) -> list[Sample]:
    """Without the times at which counters began."""
    (family,) = metric.collect()
    suffix = _COUNTER if isinstance(metric, Counter) else ""
    return [one for one in family.samples if one.name == family.name + suffix]
