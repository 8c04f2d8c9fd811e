"""The load of a server over one interval, as `peltier top` shows it and `--json` prints it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import BaseModel

from peltier_client.errors import PeltierError, UnexpectedAnswer
from peltier_client.monitor.page import Page
from peltier_client.synchronous import Client

_READY = "peltier_ready"
_FIRST_ERROR = 400
_QUARANTINED = "peltier_quarantined_adapters"
_VERSION = ("tenant", "adapter", "version")
# The label of the versions without series of their own.
_OTHER = "other"


class TenantLoad(BaseModel):
    """The load of one tenant. Tokens are those that were computed."""

    tenant: str
    requests_per_second: float
    errors_per_second: float
    tokens_per_second: float
    queue_tokens: int


class AdapterLoad(BaseModel):
    """The load of one adapter version. Times are in milliseconds, None without requests, and coarse: the histogram of a
    version has seven bounds. `name` is the task, behind the tenant unless that is `default`."""

    tenant: str
    task: str
    name: str
    requests_per_second: float
    errors_per_second: float
    p50_ms: float | None
    p99_ms: float | None


class TierLoad(BaseModel):
    """Adapters in one tier of memory, and what happened to it."""

    tier: str
    adapters: int
    size_bytes: int
    max_bytes: int
    hits_per_second: float
    evictions_per_second: float


class Requests(BaseModel):
    """Answered requests of every route, those for this load too. An error is a status of 400 or more."""

    per_second: float
    errors_per_second: float
    p50_ms: float | None
    p99_ms: float | None


class Queue(BaseModel):
    """Tokens that wait, and rows and tokens that left the queue to be computed. `fill` is the share of its bound."""

    tokens: int
    fill: float | None
    wait_ms: float | None
    rows_per_second: float
    tokens_per_second: float


class Batches(BaseModel):
    """Means of a batch, None without a batch. `fill` is the share of the tokens that fit."""

    per_second: float
    rows: float | None
    tokens: float | None
    adapters: float | None
    fill: float | None


class RunnerLoad(BaseModel):
    """`busy` is the share of the time in which the runner computed. Restarts are those since the replica started."""

    busy: float
    restarts: int
    generated_tokens_per_second: float
    texts_in_progress: int


class LoadSnapshot(BaseModel):
    """What a server did in `seconds`. `state` is `ready`, `not ready`, or how many of several replicas are.

    Tenants and adapters are in order of their requests. `loads_per_second` counts adapters that came from the store or
    the host to the device.
    """

    at: datetime
    seconds: float
    started_at: datetime | None
    state: str
    requests: Requests
    queue: Queue
    batches: Batches
    runner: RunnerLoad
    loads_per_second: float
    store_hits_per_second: float
    tiers: list[TierLoad]
    quarantined: int
    quarantined_versions: list[str]
    tenants: list[TenantLoad]
    adapters: list[AdapterLoad]


@dataclass(frozen=True)
class Reading:
    """The metrics of a server at one moment."""

    at: datetime
    page: Page


def create_load(earlier: Reading, now: Reading) -> LoadSnapshot:
    """The load between two readings of the same processes."""
    return _Interval(now, now.page.since(earlier.page), max(1e-3, (now.at - earlier.at).total_seconds())).load()


@dataclass(frozen=True)
class _Interval:
    """What is now, and what was `added` in `seconds`."""

    now: Reading
    added: Page
    seconds: float

    def load(self) -> LoadSnapshot:
        page = self.now.page
        tenants, lookups = self._tenants(), self.added.totals("peltier_adapter_cache_requests_total", "result")
        started = max(page.starts.values(), default=None)
        return LoadSnapshot(
            at=self.now.at,
            seconds=round(self.seconds, 3),
            started_at=None if started is None else datetime.fromtimestamp(started, UTC),
            state=_state([bool(ready) for _, ready in page.values(_READY)]),
            requests=self._requests(tenants),
            queue=self._queue(tenants),
            batches=self._batches(),
            runner=self._runner(),
            loads_per_second=self._rate("peltier_adapter_loads_total"),
            store_hits_per_second=lookups["store",] / self.seconds,
            tiers=self._tiers(lookups),
            quarantined=int(page.total(_QUARANTINED)),
            quarantined_versions=sorted(
                _name(*key) for key, num in page.totals(_QUARANTINED, *_VERSION).items() if num
            ),
            tenants=tenants,
            adapters=self._adapters(),
        )

    def _rate(self, name: str) -> float:
        return self.added.total(name) / self.seconds

    def _requests(self, tenants: list[TenantLoad]) -> Requests:
        times = self.added.distribution("peltier_request_seconds")
        return Requests(
            per_second=sum(one.requests_per_second for one in tenants),
            errors_per_second=sum(one.errors_per_second for one in tenants),
            p50_ms=_ms(times.quantile(0.5)),
            p99_ms=_ms(times.quantile(0.99)),
        )

    def _queue(self, tenants: list[TenantLoad]) -> Queue:
        page, waits = self.now.page, self.added.distribution("peltier_queue_seconds")
        tokens = page.total("peltier_queue_tokens")
        return Queue(
            tokens=int(tokens),
            fill=_share(tokens, page.total("peltier_queue_max_tokens")),
            wait_ms=_ms(waits.mean),
            rows_per_second=waits.count / self.seconds,
            tokens_per_second=sum(one.tokens_per_second for one in tenants),
        )

    def _batches(self) -> Batches:
        rows, tokens = (self.added.distribution(f"peltier_batch_{what}") for what in ("rows", "tokens"))
        return Batches(
            per_second=rows.count / self.seconds,
            rows=rows.mean,
            tokens=tokens.mean,
            adapters=self.added.distribution("peltier_batch_adapters").mean,
            fill=_share(tokens.total, tokens.count * self._per_replica("peltier_batch_max_tokens")),
        )

    def _per_replica(self, name: str) -> float:
        """The mean of a gauge that every replica has."""
        values = [value for _, value in self.now.page.values(name)]
        return sum(values) / max(1, len(values))

    def _runner(self) -> RunnerLoad:
        busy = sum(self._rate(f"{name}_sum") for name in ("peltier_compute_seconds", "peltier_decode_step_seconds"))
        return RunnerLoad(
            busy=min(1.0, busy / max(1, len(list(self.now.page.values(_READY))))),
            restarts=int(self.now.page.total("peltier_runner_restarts_total")),
            generated_tokens_per_second=self._rate("peltier_generated_tokens_total"),
            texts_in_progress=int(self.now.page.total("peltier_decode_rows")),
        )

    def _tiers(self, lookups: Mapping[tuple[str, ...], float]) -> list[TierLoad]:
        names = ("peltier_adapters", "peltier_adapter_bytes", "peltier_adapter_max_bytes")
        adapters, size, bounds = (self.now.page.totals(name, "tier") for name in names)
        evictions = self.added.totals("peltier_adapter_evictions_total", "tier")
        return [
            TierLoad(
                tier=tier[0],
                adapters=int(adapters[tier]),
                size_bytes=int(size[tier]),
                max_bytes=int(bound),
                hits_per_second=lookups[tier] / self.seconds,
                evictions_per_second=evictions[tier] / self.seconds,
            )
            for tier, bound in bounds.items()
        ]

    def _tenants(self) -> list[TenantLoad]:
        queued = self.now.page.totals("peltier_queue_tokens", "tenant")
        tokens = self.added.totals("peltier_tenant_served_tokens_total", "tenant")
        requests = _by_owner(self.added.totals("peltier_requests_total", "tenant", "code"))
        found = [
            TenantLoad(
                tenant=key[0],
                requests_per_second=answered / self.seconds,
                errors_per_second=errors / self.seconds,
                tokens_per_second=tokens[key] / self.seconds,
                queue_tokens=int(queued[key]),
            )
            for key in requests.keys() | queued.keys()
            for answered, errors in [requests.get(key, (0.0, 0.0))]
        ]
        return sorted(found, key=lambda one: (-one.requests_per_second, -one.queue_tokens, one.tenant))

    def _adapters(self) -> list[AdapterLoad]:
        times = self.added.distributions("peltier_adapter_request_seconds", *_VERSION)
        requests = _by_owner(self.added.totals("peltier_adapter_requests_total", *_VERSION, "code"))
        found = [
            AdapterLoad(
                tenant=tenant,
                task=f"{adapter}@{version}",
                name=_name(tenant, adapter, version),
                requests_per_second=answered / self.seconds,
                errors_per_second=errors / self.seconds,
                p50_ms=_ms(times[tenant, adapter, version].quantile(0.5)),
                p99_ms=_ms(times[tenant, adapter, version].quantile(0.99)),
            )
            for (tenant, adapter, version), (answered, errors) in requests.items()
        ]
        return sorted(found, key=lambda one: (-one.requests_per_second, one.task, one.tenant))


def _name(tenant: str, adapter: str, version: str) -> str:
    if version == _OTHER:
        return "all others"
    return f"{adapter}@{version}" if tenant == "default" else f"{tenant}:{adapter}@{version}"


def _by_owner(requests: Mapping[tuple[str, ...], float]) -> dict[tuple[str, ...], tuple[float, float]]:
    """Requests and the errors among them, by all labels but the last, which is the status."""
    found = dict[tuple[str, ...], tuple[float, float]]()
    for (*owner, code), count in requests.items():
        answered, errors = found.get(tuple(owner), (0.0, 0.0))
        found[tuple(owner)] = answered + count, errors + (count if int(code) >= _FIRST_ERROR else 0.0)
    return found


def _state(ready: list[bool]) -> str:
    if len(ready) > 1 and not all(ready):
        return f"{sum(ready)} of {len(ready)} replicas ready"
    return "ready" if all(ready) else "not ready"


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)


@dataclass(frozen=True)
class Lost:
    """The server gave no answer."""

    at: datetime
    error: PeltierError


def read_load(client: Client, wait: Callable[[], object]) -> Iterator[LoadSnapshot | Lost]:
    """A snapshot after each `wait`, or why there is none, until `wait` returns something true. Raises a `PeltierError`
    if the first reading fails.

    After a server was lost, the next snapshot covers the time since the last reading. There is none of a time in which
    a process was started, or a balancer went on to another one: their counters have nothing in common.
    """
    earlier = _read(client)
    while not wait():
        try:
            now = _read(client)
        except PeltierError as error:
            yield Lost(datetime.now(UTC), error)
            continue
        if now.page.starts == earlier.page.starts:
            yield create_load(earlier, now)
        earlier = now


def _read(client: Client) -> Reading:
    page = Page.parse(client.metrics())
    if not any(page.values(_READY)):
        raise UnexpectedAnswer(f"the server's answer has no {_READY}, which every page of metrics has")
    return Reading(datetime.now(UTC), page)
