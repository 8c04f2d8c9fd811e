"""The metrics that Prometheus scrapes, and the page that it reads. Each app has its own; those of several replicas are
merged."""

import re
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Metric,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from peltier_server.context import VersionLabels
from peltier_server.metrics.series import (
    FINE_SECONDS,
    OTHER,
    Histogram,
    MatchedRoute,
    Series,
    TenantLabels,
    VersionMetrics,
)

if TYPE_CHECKING:
    from peltier_server.queue.batch import TicketBatch
    from peltier_server.queue.ticket import Ticket

_OPENMETRICS = "application/openmetrics-text"
# Escapes underscores, so it changes every name. The library writes such a page.
_REWRITES_NAMES = "escaping=dots"
_CREATED = "_created"
_number: Callable[[float], str] = floatToGoString
_FAMILY = re.compile(r"^# (?:HELP|TYPE) (\S+)")
_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{)?")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Of the histograms with labels.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ROUTE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_TOKENS = (16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)

T = TypeVar("T")


class Exposition:
    """Writes pages of one registry, each equal to that of the library.

    The library takes most of its time to write the names and labels of the series anew. Here the series of the last
    page are remembered. Counters, gauges and histograms are supported, with names that Prometheus has always allowed.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._names: dict[tuple[str, ...], str] = {}

    def page(self, accept: str) -> tuple[bytes, str]:
        """The page in the format that `accept` prefers, and its content type."""
        encode, content_type = choose_encoder(accept)
        if _REWRITES_NAMES in content_type:
            return encode(self._registry), content_type
        names: dict[tuple[str, ...], str] = {}
        write = self._openmetrics if content_type.startswith(_OPENMETRICS) else self._text
        page = "".join(write(names)).encode()
        self._names = names
        return page, content_type

    def _openmetrics(self, names: dict[tuple[str, ...], str]) -> Iterator[str]:
        for family in self._registry.collect():
            yield _head(family.name, family.type, _escaped(family.documentation))
            yield from self._lines(family.samples, names)
        yield "# EOF\n"

    def _text(self, names: dict[tuple[str, ...], str]) -> Iterator[str]:
        for family in self._registry.collect():
            text = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
            created_name = family.name + _CREATED
            yield _head(_text_name(family), family.type, text)
            yield from self._lines([one for one in family.samples if one.name != created_name], names)
            created = [one for one in family.samples if one.name == created_name]
            if created:
                yield _head(created_name, "gauge", text)
                yield from self._lines(created, names)

    def _lines(self, samples: list[Sample], names: dict[tuple[str, ...], str]) -> Iterator[str]:
        for sample in samples:
            # All samples of a name have the same labels in the same order.
            key = (sample.name, *sample.labels.values())
            name = names[key] = self._names.get(key) or _name(sample)
            yield f"{name} {_number(sample.value)}\n"


def _text_name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _head(name: str, kind: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _name(sample: Sample) -> str:
    labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in sorted(sample.labels.items()))
    return f"{sample.name}{{{labels}}}" if labels else sample.name


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class Metrics:
    """Every counter, histogram and gauge of one app."""

    def __init__(self, max_versions: int = 100) -> None:
        self._registry = CollectorRegistry()
        self._groups: dict[object, Any] = {}
        self._exposition = Exposition(self._registry)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)
        self._tenants = TenantLabels()
        self._max_versions = max_versions
        self._add_requests()
        self._add_batches()
        self._add_texts()
        self._add_adapters()
        self.versions = VersionMetrics(self._registry, max_versions)
        self._add_tenants()
        self._add_failures()

    def _add_requests(self) -> None:
        self.requests = self.counter(
            "peltier_requests_total",
            "Answered requests by HTTP status; 499 is a caller who disconnected",
            "tenant",
            "code",
        )
        self.request_seconds = self._histogram(
            "peltier_request_seconds", "From a request to the end of its answer", FINE_SECONDS
        )
        self._route_seconds = self._histograms(
            "peltier_route_request_seconds",
            "From a request to the end of its answer, by route; none is an unknown path or a refused key",
            _ROUTE_SECONDS,
            *MatchedRoute._fields,
        )
        self._truncated = self.counter(
            "peltier_truncated_inputs_total", "Inputs that were truncated to the max_length of their task", "tenant"
        )
        self.uploads = self.counter(
            "peltier_uploads_total", "Uploads: created a version, existing as one already, or refused", "result"
        )
        # Cached, because every request looks them up. Their number is that of labelled tenants times status codes.
        self._requests_of = cache(self.requests.labels)

    def _add_batches(self) -> None:
        self.queue_seconds = self._histogram(
            "peltier_queue_seconds", "How long a row waited for its batch", FINE_SECONDS
        )
        self.compute_seconds = self._histogram("peltier_compute_seconds", "Compute time of a batch", FINE_SECONDS)
        self.batch_rows = self._histogram("peltier_batch_rows", "Rows of a batch", _ROWS)
        self.batch_tokens = self._histogram("peltier_batch_tokens", "Tokens of a batch", _TOKENS)
        self.batch_adapters = self._histogram("peltier_batch_adapters", "Distinct adapters of a batch", _ROWS)

    def _add_texts(self) -> None:
        self.generated_tokens = self.counter("peltier_generated_tokens_total", "Tokens of generated texts")
        self.decode_step_seconds = self._histogram(
            "peltier_decode_step_seconds", "One decoding step of all texts in progress", FINE_SECONDS
        )
        self.decode_rows = self.gauge("peltier_decode_rows", "Texts and beams in progress")

    def _add_adapters(self) -> None:
        self.load_seconds = self._histograms(
            "peltier_adapter_load_seconds",
            "Loading an adapter to the device, by the tier it came from: host or store",
            _SECONDS,
            "from",
        )
        self.loads = self.counter("peltier_adapter_loads_total", "Adapters loaded to the device")
        self.load_failures = self.counter(
            "peltier_adapter_load_failures_total", "Loads of adapters that failed, by damaged bytes or the store"
        )
        self.evictions = self.counter("peltier_adapter_evictions_total", "Adapters evicted from a tier", "tier")
        self.cold_start_seconds = self._histograms(
            "peltier_cold_start_seconds",
            "How long requests waited for an adapter outside the device, by the tier it came from: host or store",
            _SECONDS,
            "from",
        )
        self.pinned_adapters = self.gauge("peltier_pinned_adapters", "Adapters pinned to the device", "tier")
        self.pin_failures = self.gauge(
            "peltier_pin_failures", "Pinned adapters that this replica could not load at its last attempt"
        )
        self.warm_failures = self.gauge(
            "peltier_warm_failures", "Adapters of the setting warm that could not be loaded at the start"
        )
        self.cache_requests = self.counter(
            "peltier_adapter_cache_requests_total", "Adapter lookups by cache tier: device, host or store", "result"
        )
        self.cache_requests_of = cache(self.cache_requests.labels)
        self.adapter_wait_seconds = self._histograms(
            "peltier_adapter_wait_seconds",
            "How long a request waited for a load to begin (store), or for free memory on the device (room)",
            _SECONDS,
            "for",
        )
        self.adapter_refusals = self.counter(
            "peltier_adapter_refusals_total",
            "Requests whose wait exceeded max_load_wait_seconds, by what they waited for",
            "for",
        )
        self.adapters = self.gauge("peltier_adapters", "Adapters in a cache tier", "tier")
        self.adapter_bytes = self.gauge("peltier_adapter_bytes", "Bytes of adapters in a cache tier", "tier")
        self._max_adapter_bytes = self.gauge(
            "peltier_adapter_max_bytes", "Maximum of bytes of adapters in a cache tier", "tier"
        )

    def _add_tenants(self) -> None:
        self.tenant_tokens = self.counter("peltier_tenant_served_tokens_total", "Computed tokens, by tenant", "tenant")
        self.tenant_rows = self.counter(
            "peltier_tenant_rows_total", "Rows and texts that left the queue to be computed, by tenant", "tenant"
        )
        self._tenant_wait = self.counter(
            "peltier_tenant_queue_seconds_total", "Sum of the queueing times of rows and texts, by tenant", "tenant"
        )
        # Cached, because every batch looks them up. The number of labelled tenants is bounded.
        self._tenant_tokens_of = cache(self.tenant_tokens.labels)
        self._tenant_rows_of = cache(self.tenant_rows.labels)
        self._tenant_wait_of = cache(self._tenant_wait.labels)
        self._queue_tokens = self.gauge("peltier_queue_tokens", "Tokens in the queue", "tenant")
        self._max_queue_tokens = self.gauge("peltier_queue_max_tokens", "Maximum of tokens in the queue")
        self._max_batch_tokens = self.gauge("peltier_batch_max_tokens", "Maximum of tokens in a batch")
        self._queued_tokens: Callable[[], Mapping[str, int]] = dict

    def _add_failures(self) -> None:
        self._ready = self.gauge("peltier_ready", "1 while /ready is 200, else 0")
        self.runner_restarts = self.counter("peltier_runner_restarts_total", "Stuck runners replaced")
        self._quarantined = self.gauge(
            "peltier_quarantined_adapters", "Versions in quarantine after repeated failures", *VersionLabels._fields
        )
        self.set_quarantined(())

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """A new counter."""
        return Counter(name, text, labels, registry=self._registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """A new gauge."""
        return Gauge(name, text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, bounds: Sequence[float]) -> Series:
        return self._histograms(name, text, bounds).labels()

    def _histograms(self, name: str, text: str, bounds: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, text, bounds, labels, self._registry)

    def group(self, kind: Callable[["Metrics"], T]) -> T:
        """The metrics that an extension declares in the class `kind`, which are made by the first call."""
        if kind not in self._groups:
            self._groups[kind] = kind(self)
        found: T = self._groups[kind]
        return found

    def observe_request(self, tenant: str | None, code: int, seconds: float) -> None:
        """A request of `tenant` has been answered; None is a caller without a key."""
        self._requests_of(self._tenants.of(tenant), code).inc()
        self.request_seconds.observe(seconds)

    def observe_truncation(self, tenant: str, num_inputs: int) -> None:
        """Inputs of a request of `tenant` were truncated to the maximum length of their task."""
        if num_inputs:
            self._truncated.labels(self._tenants.of(tenant)).inc(num_inputs)

    def observe_route(self, route: MatchedRoute, seconds: float) -> None:
        """A request to this route has been answered."""
        self._route_seconds.labels(*route).observe(seconds)

    def observe_batch(self, batch: "TicketBatch", seconds: float) -> None:
        """A batch has been computed."""
        self.compute_seconds.observe(seconds)
        self.batch_rows.observe(batch.num_rows)
        self.batch_tokens.observe(batch.tokens)
        self.batch_adapters.observe(batch.num_adapters)
        self.observe_start(batch.tickets, batch.started_at)

    def observe_start(self, tickets: "Sequence[Ticket]", started_at: float) -> None:
        """Rows are computed or texts begun: counts their waiting times and the tokens of their first pass."""
        by_tenant: dict[str, list[Ticket]] = defaultdict(list)
        for ticket in tickets:
            self.queue_seconds.observe(started_at - ticket.queued_at, len(ticket.rows))
            by_tenant[self._tenants.of(ticket.tenant)].append(ticket)
        for tenant, own in by_tenant.items():
            waited = sum((started_at - ticket.queued_at) * len(ticket.rows) for ticket in own)
            self._tenant_tokens_of(tenant).inc(sum(ticket.pass_tokens for ticket in own))
            self._tenant_rows_of(tenant).inc(sum(len(ticket.rows) for ticket in own))
            self._tenant_wait_of(tenant).inc(waited)

    def observe_step(self, seconds: float, num_texts: int, tokens_by_tenant: Mapping[str, int]) -> None:
        """A decoding step has generated a token of each text."""
        if not num_texts:
            return
        self.decode_step_seconds.observe(seconds)
        self.generated_tokens.inc(num_texts)
        for tenant, tokens in tokens_by_tenant.items():
            self._tenant_tokens_of(self._tenants.of(tenant)).inc(tokens)

    def follow_readiness(self, is_ready: Callable[[], bool]) -> None:
        """Calls `is_ready` at every scrape."""
        self._ready.set_function(is_ready)

    def follow_queue(self, tokens_by_tenant: Callable[[], Mapping[str, int]], max_tokens: int) -> None:
        """Calls `tokens_by_tenant` at every scrape. The queue holds at most `max_tokens`."""
        self._queued_tokens = tokens_by_tenant
        self._max_queue_tokens.set(max_tokens)

    def set_bounds(self, *, batch_tokens: int, **tier_bytes: int) -> None:
        """The most tokens of a batch, and the most bytes of adapters in each tier."""
        self._max_batch_tokens.set(batch_tokens)
        for tier, most in tier_bytes.items():
            self._max_adapter_bytes.labels(tier).set(most)

    def set_quarantined(self, versions: Sequence[VersionLabels]) -> None:
        """The versions in quarantine. Those beyond the number of versions with series share that of `OTHER`."""
        self._quarantined.clear()
        for labels in versions[: self._max_versions]:
            self._quarantined.labels(*labels).set(1)
        self._quarantined.labels(*OTHER).set(max(0, len(versions) - self._max_versions))

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The page in the format that `accept` prefers, and its content type."""
        self._refresh_queue_tokens()
        page = self._exposition.page(accept)
        self.versions.turn_over()
        return page

    def _refresh_queue_tokens(self) -> None:
        tokens = Counts[str](dict.fromkeys(self._tenants.known, 0))
        for tenant, number in self._queued_tokens().items():
            tokens[self._tenants.of(tenant)] += number
        for label, number in tokens.items():
            self._queue_tokens.labels(label).set(number)


def merge_pages(pages: Mapping[str, bytes]) -> bytes:
    """One page in Prometheus' text format with every sample of `pages`, each with the label `replica`, the key of its
    page. The samples of a metric stand together, as the format requires."""
    heads, samples = dict[str, list[str]](), dict[str, list[str]]()
    for replica, page in sorted(pages.items()):
        family = ""
        for line in page.decode().splitlines():
            if found := _FAMILY.match(line):
                family = found[1]
                head = heads.setdefault(family, [])
                if line not in head:
                    head.append(line)
            elif line and not line.startswith("#"):
                samples.setdefault(family, []).append(_labelled(line, replica))
    return "".join(f"{line}\n" for family in heads for line in (*heads[family], *samples.get(family, ()))).encode()


def _labelled(sample: str, replica: str) -> str:
    name, rest = _SAMPLE.match(sample), ""
    assert name is not None, "every other line is a sample"
    rest = sample[name.end() :]
    return f'{name[1]}{{replica="{replica}"' + (f",{rest}" if name[2] else f"}}{rest}")
