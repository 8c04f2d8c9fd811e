"""reference/metrics.md: every metric of `GET /metrics`."""

import re

from peltier_server.app import EXTENSIONS
from peltier_server.metrics.metrics import Metrics
from peltier_server.metrics.series import Histogram
from prometheus_client.metrics import MetricWrapperBase

from docs.generator.table import table

_HEAD = """# Metrics

`GET /metrics` answers in Prometheus' text format, or in OpenMetrics if the caller accepts it. Durations are in seconds,
sizes in bytes. A histogram has the series `…_bucket`, `…_sum` and `…_count`, a counter also `…_created`, the time at
which it began. Label values are bounded: the first hundred tenants have their own labels, the others share `_others`,
and callers without a key are `_nobody`. [Operations](../operations.md#metrics-and-alerts) lists alerts.

"""
# These collectors make their series only when a page is written.
_LABELS_OF_THE_PROCESS = {
    "python_info": "implementation, major, minor, patchlevel, version",
    "python_gc_collections_total": "generation",
    "python_gc_objects_collected_total": "generation",
    "python_gc_objects_uncollectable_total": "generation",
}


def metrics_page() -> str:
    """The page, in the order of the exposition."""
    metrics = Metrics()
    groups = [metrics.group(one.metrics) for one in EXTENSIONS if one.metrics is not None]
    page = metrics.exposition("")[0].decode()
    helps = dict(re.findall(r"^# HELP (\w+) (.*)$", page, flags=re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, flags=re.MULTILINE))
    labels = {**_LABELS_OF_THE_PROCESS, **_labels(metrics, metrics.versions, *groups)}
    rows = [
        (f"`{name}`", kind, labels.get(name.removesuffix("_total"), labels.get(name, "")), helps[name])
        for name, kind in kinds.items()
        if not name.endswith("_created")
    ]
    return _HEAD + table(("metric", "type", "labels", "description"), rows) + "\n"


def _labels(*owners: object) -> dict[str, str]:
    # The library keeps the names of labels in no public place, and lists no metrics.
    values = [value for owner in owners for value in vars(owner).values()]
    members = [one for value in values for one in (value if isinstance(value, list) else [value])]
    names = [(one, one._labelnames) for one in members if isinstance(one, MetricWrapperBase)]
    names += [(one, tuple(one.label_names)) for one in members if isinstance(one, Histogram)]
    return {family.name: ", ".join(labels) for one, labels in names for family in one.collect()}
