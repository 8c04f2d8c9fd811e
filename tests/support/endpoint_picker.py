"""An endpoint picker that reads replicas and scores them by the rules of llm-d-router.

The router is a program in Go, which needs the modules of its dependencies to be built. Each rule names its source in
https://github.com/llm-d/llm-d-router at ebab687 (August 2026), below `pkg/epp/framework/plugins`; the Gateway API
Inference Extension had the same rules before. `prometheus_client` stands for Prometheus' parser of the text format.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

# The names that the engine "vllm" has by default: datalayer/extractor/metrics/factories.go, defaultEngineConfigs.
VLLM = {
    "queuedRequestsSpec": "vllm:num_requests_waiting",
    "runningRequestsSpec": "vllm:num_requests_running",
    "kvUsageSpec": "vllm:kv_cache_usage_perc",
    "loraSpec": "vllm:lora_requests_info",
}
# datalayer/source/metrics/datasource.go, parseMetrics: names by model.LegacyValidation.
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(frozen=True)
class Endpoint:
    """What the picker knows of a replica: `Metrics` of framework/interface/datalayer/metrics.go."""

    waiting_queue_size: int
    running_requests_size: int
    kv_cache_usage: float
    active_models: frozenset[str] = field(default_factory=frozenset)
    waiting_models: frozenset[str] = field(default_factory=frozenset)
    max_active_models: int = 0

    @classmethod
    def read(cls, page: str, engine: Mapping[str, str] = VLLM) -> Self:
        """What the extractor finds on a page; datalayer/extractor/metrics/extractor.go, Extract. `engine` has the
        names of the metrics by the parameters of `core-metrics-extractor`."""
        families = {family.name: family for family in text_string_to_metric_families(page)}
        assert all(_NAME.fullmatch(name) for name in families)
        labels = _latest_labels(families[engine["loraSpec"]])
        return cls(
            # int() of a float64 there too.
            waiting_queue_size=int(_value(families[engine["queuedRequestsSpec"]])),
            running_requests_size=int(_value(families[engine["runningRequestsSpec"]])),
            kv_cache_usage=_value(families[engine["kvUsageSpec"]]),
            active_models=_adapters(labels["running_lora_adapters"]),
            waiting_models=_adapters(labels["waiting_lora_adapters"]),
            # strconv.Atoi: an integer, without spaces.
            max_active_models=int(labels["max_lora"]),
        )

    def lora_affinity(self, model: str) -> float:
        """The score for a request that names `model`; scheduling/scorer/loraaffinity/lora_affinity.go, Score."""
        if model in self.active_models:
            return 1.0
        if len(self.active_models) + len(self.waiting_models) < self.max_active_models:
            return 0.8
        return 0.6 if model in self.waiting_models else 0.0


def _value(family: Metric) -> float:
    # extractValue reads gauges and counters; metrics without timestamps are all the latest, and the first one wins.
    assert family.type == "gauge"
    return float(family.samples[0].value)


def _latest_labels(family: Metric) -> Mapping[str, str]:
    # datalayer/extractor/metrics/loraspec.go, getLatestMetric: the value is a time, and must be above -1.
    assert family.type == "gauge"
    latest = max(family.samples, key=lambda sample: sample.value)
    assert latest.value > -1
    return latest.labels


def _adapters(names: str) -> frozenset[str]:
    # extractor.go, addAdapters: separated by commas, trimmed, empty ones dropped.
    return frozenset(name.strip() for name in names.split(",") if name.strip())
