"""What Prometheus scrapes. Names carry their units; every app counts for itself."""

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder

from peltier_server.metrics.labels import MatchedRoute, TenantLabels
from peltier_server.metrics.version_metrics import VersionMetrics
from peltier_server.queue.batch import Batch
from peltier_server.queue.ticket import Ticket

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ROUTE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_TOKENS = (16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


class Metrics:
    """Every counter, histogram and gauge of one app."""

    def __init__(self, max_versions: int = 100) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        # The client library appends _total to the names of counters.
        self.requests = Counter(
            "peltier_requests",
            "Answered requests by HTTP status; 499 is a caller who disconnected",
            ("tenant", "code"),
            registry=registry,
        )
        self.request_seconds = _histogram(
            "request_seconds", "From a request to the end of its answer", _SECONDS, registry
        )
        self._route_seconds = Histogram(
            "peltier_route_request_seconds",
            "From a request to the end of its answer, by route; none is an unknown path or a refused key",
            MatchedRoute._fields,
            buckets=_ROUTE_SECONDS,
            registry=registry,
        )
        self.queue_seconds = _histogram("queue_seconds", "How long a row waited for its batch", _SECONDS, registry)
        self.compute_seconds = _histogram("compute_seconds", "Compute time of a batch", _SECONDS, registry)
        self.batch_rows = _histogram("batch_rows", "Rows of a batch", _ROWS, registry)
        self.batch_tokens = _histogram("batch_tokens", "Tokens of a batch", _TOKENS, registry)
        self.batch_adapters = _histogram("batch_adapters", "Distinct adapters of a batch", _ROWS, registry)
        self._truncated = Counter(
            "peltier_truncated_inputs",
            "Inputs that were truncated to the max_length of their task",
            ("tenant",),
            registry=registry,
        )
        self.generated_tokens = Counter("peltier_generated_tokens", "Tokens of generated texts", registry=registry)
        self.decode_step_seconds = _histogram(
            "decode_step_seconds", "One decoding step of all texts in progress", _SECONDS, registry
        )
        self.decode_rows = Gauge("peltier_decode_rows", "Texts and beams in progress", registry=registry)
        self.load_seconds = Histogram(
            "peltier_adapter_load_seconds",
            "Loading an adapter to the device, by the tier it came from: host or store",
            ("from",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.loads = Counter("peltier_adapter_loads", "Adapters loaded to the device", registry=registry)
        self.evictions = Counter(
            "peltier_adapter_evictions", "Adapters evicted from a tier", ("tier",), registry=registry
        )
        self.cache_requests = Counter(
            "peltier_adapter_cache_requests",
            "Adapter lookups by cache tier: device, host or store",
            ("result",),
            registry=registry,
        )
        self.adapter_wait_seconds = Histogram(
            "peltier_adapter_wait_seconds",
            "How long a request waited for a load to begin (store), or for free memory on the device (room)",
            ("for",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.adapter_refusals = Counter(
            "peltier_adapter_refusals",
            "Requests whose wait exceeded max_load_wait_seconds, by what they waited for",
            ("for",),
            registry=registry,
        )
        self.adapters = Gauge("peltier_adapters", "Adapters in a cache tier", ("tier",), registry=registry)
        self.adapter_bytes = Gauge(
            "peltier_adapter_bytes", "Bytes of adapters in a cache tier", ("tier",), registry=registry
        )
        self._tenants = TenantLabels()
        # Looked up for every request; there are as many as tenants that have labels, times status codes.
        self._requests_of = cache(self.requests.labels)
        # As many as there are routes, times their methods.
        self._route_seconds_of = cache(self._route_seconds.labels)
        self.versions = VersionMetrics(registry, max_versions)
        self._tenant_tokens = _by_tenant("served_tokens", "Computed tokens", registry)
        self._tenant_rows = _by_tenant("rows", "Rows and texts that left the queue to be computed", registry)
        self._tenant_wait = _by_tenant("queue_seconds", "Sum of the queueing times of rows and texts", registry)
        self._queue_tokens = Gauge("peltier_queue_tokens", "Tokens in the queue", ("tenant",), registry=registry)
        self._queued_tokens: Callable[[], Mapping[str, int]] = dict
        self.runner_restarts = Counter("peltier_runner_restarts", "Stuck runners replaced", registry=registry)
        self.quarantined = Gauge(
            "peltier_quarantined_adapters", "Versions in quarantine after repeated failures", registry=registry
        )
        self.uploads = Counter(
            "peltier_uploads",
            "Uploads: created a version, existing as one already, or refused",
            ("result",),
            registry=registry,
        )

    def observe_request(self, tenant: str | None, code: int, seconds: float) -> None:
        """A request of `tenant` has been answered; None for someone without a key."""
        self._requests_of(self._tenants.of(tenant), code).inc()
        self.request_seconds.observe(seconds)

    def observe_truncation(self, tenant: str, num_inputs: int) -> None:
        """So many inputs of one request of `tenant` are longer than their task takes and are computed truncated."""
        if num_inputs:
            self._truncated.labels(self._tenants.of(tenant)).inc(num_inputs)

    def observe_route(self, route: MatchedRoute, seconds: float) -> None:
        """A request has been answered there."""
        self._route_seconds_of(*route).observe(seconds)

    def observe_batch(self, batch: Batch, seconds: float) -> None:
        """A batch has been computed."""
        self.compute_seconds.observe(seconds)
        self.batch_rows.observe(len(batch.tickets))
        self.batch_tokens.observe(batch.tokens)
        self.batch_adapters.observe(batch.num_adapters)
        self.observe_start(batch.tickets, batch.started_at)

    def observe_start(self, tickets: Sequence[Ticket], started_at: float) -> None:
        """Rows are computed, or texts begun: how long each has waited, and what its first pass costs."""
        tokens, rows, waits = Counts[str](), Counts[str](), defaultdict[str, float](float)
        for ticket in tickets:
            waited = started_at - ticket.queued_at
            self.queue_seconds.observe(waited)
            tenant = self._tenants.of(ticket.tenant)
            tokens[tenant] += ticket.pass_tokens
            rows[tenant] += 1
            waits[tenant] += waited
        for tenant, waited in waits.items():
            self._tenant_tokens.labels(tenant).inc(tokens[tenant])
            self._tenant_rows.labels(tenant).inc(rows[tenant])
            self._tenant_wait.labels(tenant).inc(waited)

    def observe_step(self, seconds: float, num_texts: int, tokens_by_tenant: Mapping[str, int]) -> None:
        """Each of so many texts has gained a token, with beams one on each."""
        if not num_texts:
            return
        self.decode_step_seconds.observe(seconds)
        self.generated_tokens.inc(num_texts)
        for tenant, tokens in tokens_by_tenant.items():
            self._tenant_tokens.labels(self._tenants.of(tenant)).inc(tokens)

    def follow_queue(self, tokens_by_tenant: Callable[[], Mapping[str, int]]) -> None:
        """Ask `tokens_by_tenant` at every scrape."""
        self._queued_tokens = tokens_by_tenant

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The page in the format that `accept` prefers, and its content type."""
        self._refresh_queue_tokens()
        encode, content_type = choose_encoder(accept)
        page = encode(self._registry)
        self.versions.turn_over()
        return page, content_type

    def _refresh_queue_tokens(self) -> None:
        queued = Counts[str](dict.fromkeys(self._tenants.known, 0))
        for tenant, tokens in self._queued_tokens().items():
            queued[self._tenants.of(tenant)] += tokens
        for label, tokens in queued.items():
            self._queue_tokens.labels(label).set(tokens)


def _by_tenant(name: str, text: str, registry: CollectorRegistry) -> Counter:
    return Counter(f"peltier_tenant_{name}", f"{text}, by tenant", ("tenant",), registry=registry)


def _histogram(name: str, text: str, buckets: tuple[float, ...], registry: CollectorRegistry) -> Histogram:
    return Histogram(f"peltier_{name}", text, buckets=buckets, registry=registry)
