"""The values of counters and gauges by their labels."""

from collections import defaultdict
from collections.abc import Mapping

from prometheus_client import Counter, Gauge
from prometheus_client.samples import Sample

_COUNTER = "_total"


def total(metric: Counter | Gauge) -> int:
    """The value of a metric without labels."""
    return int(_samples(metric)[0].value)


def counts(metric: Counter | Gauge) -> dict[str, int]:
    """The values of a metric with one label."""
    return {next(iter(one.labels.values())): int(one.value) for one in _samples(metric)}


def nested_counts(metric: Counter) -> Mapping[str, dict[str, int]]:
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
