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


def labelled_counts(metric: Counter, num_labels: int) -> Mapping[tuple[str, ...], dict[str, int]]:
    """The values by the last of the labels, for each combination of the `num_labels` before it."""
    found: defaultdict[tuple[str, ...], dict[str, int]] = defaultdict(dict)
    for one in _samples(metric):
        *labels, last = one.labels.values()
        found[tuple(labels[:num_labels])][last] = int(one.value)
    return found


def _samples(metric: Counter | Gauge) -> list[Sample]:
    """Without the times at which counters began."""
    (family,) = metric.collect()
    suffix = _COUNTER if isinstance(metric, Counter) else ""
    return [one for one in family.samples if one.name == family.name + suffix]
