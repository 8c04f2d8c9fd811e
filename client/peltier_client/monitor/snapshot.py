"""The load of a replica over one interval, as `peltier top` shows it and `--json` prints it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import BaseModel

from peltier_client.asynchronous import AsyncClient
from peltier_client.errors import PeltierError
from peltier_client.protocol import Distribution, LiveAdapter, LiveSnapshot, LiveTenant, LiveTier

# As many as the server may measure by themselves.
_MAX_VERSIONS = 500


@dataclass(frozen=True)
class Growth:
    """The values that came to a distribution: `counts[i]` at most `bounds[i]`, the last above all bounds."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float

    @classmethod
    def between(cls, earlier: Distribution | None, now: Distribution) -> "Growth":
        """From an earlier reading to a later one. None, or a larger one, is of a time before the counts began again."""
        if earlier is None or earlier.bounds != now.bounds or any(map(int.__gt__, earlier.counts, now.counts)):
            return cls(now.bounds, now.counts, now.total)
        counts = [new - old for old, new in zip(earlier.counts, now.counts, strict=True)]
        return cls(now.bounds, counts, now.total - earlier.total)

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """Of all values; None without any."""
        return self.total / self.count if self.count else None

    def quantile(self, share: float) -> float | None:
        """The value below which this share of all values is, interpolated between bounds; None without values.

        Above the last bound it is that bound.
        """
        if not self.count:
            return None
        left, lower = share * self.count, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if left <= count and count:
                return lower + (bound - lower) * left / count
            left, lower = left - count, bound
        return lower


def added(earlier: Mapping[str, int] | None, now: Mapping[str, int]) -> dict[str, int]:
    """How much each counter grew. One that is smaller than before began again at 0."""
    before = earlier or {}
    return {name: count - before.get(name, 0) if count >= before.get(name, 0) else count for name, count in now.items()}


class TenantLoad(BaseModel):
    """The load of one tenant. Tokens are those that were computed."""

    tenant: str
    requests_per_second: float
    errors_per_second: float
    tokens_per_second: float
    queue_tokens: int
    open_requests: int


class AdapterLoad(BaseModel):
    """The load of one adapter version. Times are in milliseconds, None without requests."""

    tenant: str
    task: str
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
    """Rows and tokens that wait, and those that left the queue to be computed. `fill` is the share of its bound."""

    rows: int
    tokens: int
    fill: float
    wait_ms: float | None
    rows_per_second: float
    tokens_per_second: float


class Batches(BaseModel):
    """Means of a batch, None without a batch. `fill` is the share of the nearer of the bounds on rows and on tokens."""

    per_second: float
    rows: float | None
    tokens: float | None
    adapters: float | None
    fill: float | None


class RunnerLoad(BaseModel):
    """`busy` is the share of the time in which the runner computed. Restarts are those since the replica started."""

    state: str
    busy: float
    restarts: int
    generated_tokens_per_second: float
    texts_in_progress: int


class LoadSnapshot(BaseModel):
    """What a replica did in `seconds`. `state` is `ready`, or why it accepts no predictions.

    Tenants and adapters are in order of their requests. `loads_per_second` counts adapters that came from the store or
    the host to the device, `quarantine` has tasks of the first versions in quarantine.
    """

    at: datetime
    seconds: float
    started_at: datetime
    state: str
    requests: Requests
    queue: Queue
    batches: Batches
    runner: RunnerLoad
    loads_per_second: float
    store_hits_per_second: float
    tiers: list[TierLoad]
    quarantined: int
    quarantine: list[str]
    tenants: list[TenantLoad]
    adapters: list[AdapterLoad]


def create_snapshot(earlier: LiveSnapshot, now: LiveSnapshot) -> LoadSnapshot:
    """The load between two readings. After a restart it is that since the start."""
    return _Interval(earlier, now).snapshot()


class _Interval:
    """Two readings of one replica."""

    def __init__(self, earlier: LiveSnapshot, now: LiveSnapshot) -> None:
        self._now = now
        self._before = earlier if earlier.started_at == now.started_at else None
        self._seconds = max(1e-3, (now.at - (self._before.at if self._before else now.started_at)).total_seconds())

    def snapshot(self) -> LoadSnapshot:
        now, before = self._now, self._before
        lookups = added(before.lookups if before else None, now.lookups)
        return LoadSnapshot(
            at=now.at,
            seconds=round(self._seconds, 3),
            started_at=now.started_at,
            state="ready" if now.ready else now.reason or "not ready",
            requests=self._requests(),
            queue=self._queue(),
            batches=self._batches(),
            runner=self._runner(),
            loads_per_second=self._rate(lambda live: live.loads),
            store_hits_per_second=lookups.get("store", 0) / self._seconds,
            tiers=[self._tier(tier, lookups) for tier in now.tiers],
            quarantined=now.quarantined,
            quarantine=[f"{one.adapter.name}@{one.adapter.version}" for one in now.quarantine],
            tenants=self._tenants(),
            adapters=self._adapters(),
        )

    def _growth(self, of: Callable[[LiveSnapshot], Distribution]) -> Growth:
        return Growth.between(of(self._before) if self._before else None, of(self._now))

    def _rate(self, of: Callable[[LiveSnapshot], int]) -> float:
        return self._per_second(of(self._before) if self._before else 0, of(self._now))

    def _per_second(self, earlier: int, now: int) -> float:
        return (now - earlier if now >= earlier else now) / self._seconds

    def _requests(self) -> Requests:
        growth = self._growth(lambda live: live.seconds)
        tenants = self._tenants()
        return Requests(
            per_second=sum(one.requests_per_second for one in tenants),
            errors_per_second=sum(one.errors_per_second for one in tenants),
            p50_ms=_ms(growth.quantile(0.5)),
            p99_ms=_ms(growth.quantile(0.99)),
        )

    def _queue(self) -> Queue:
        queue = self._now.queue
        waits = self._growth(lambda live: live.queue.seconds)
        return Queue(
            rows=queue.rows,
            tokens=queue.tokens,
            fill=queue.tokens / queue.max_tokens,
            wait_ms=_ms(waits.mean),
            rows_per_second=waits.count / self._seconds,
            tokens_per_second=sum(one.tokens_per_second for one in self._tenants()),
        )

    def _batches(self) -> Batches:
        rows, tokens = self._growth(lambda live: live.batches.rows), self._growth(lambda live: live.batches.tokens)
        shares = [(rows.mean, self._now.batches.max_rows), (tokens.mean, self._now.batches.max_tokens)]
        return Batches(
            per_second=rows.count / self._seconds,
            rows=rows.mean,
            tokens=tokens.mean,
            adapters=self._growth(lambda live: live.batches.adapters).mean,
            fill=max((mean / bound for mean, bound in shares if mean is not None), default=None),
        )

    def _runner(self) -> RunnerLoad:
        batches = self._growth(lambda live: live.batches.seconds)
        steps = self._growth(lambda live: live.texts.step_seconds)
        return RunnerLoad(
            state=self._now.runner.state,
            busy=min(1.0, (batches.total + steps.total) / self._seconds),
            restarts=self._now.runner.restarts,
            generated_tokens_per_second=self._rate(lambda live: live.texts.tokens),
            texts_in_progress=self._now.texts.rows,
        )

    def _tier(self, now: LiveTier, lookups: Mapping[str, int]) -> TierLoad:
        earlier = {one.tier: one.evictions for one in self._before.tiers} if self._before else {}
        return TierLoad(
            tier=now.tier,
            adapters=now.adapters,
            size_bytes=now.bytes,
            max_bytes=now.max_bytes,
            hits_per_second=lookups.get(now.tier, 0) / self._seconds,
            evictions_per_second=self._per_second(earlier.get(now.tier, 0), now.evictions),
        )

    def _tenants(self) -> list[TenantLoad]:
        earlier = {one.tenant: one for one in self._before.tenants} if self._before else {}
        found = [self._tenant(earlier.get(one.tenant), one) for one in self._now.tenants]
        return sorted(found, key=lambda one: (-one.requests_per_second, -one.queue_tokens, one.tenant))

    def _tenant(self, earlier: LiveTenant | None, now: LiveTenant) -> TenantLoad:
        requests = added(earlier.requests if earlier else None, now.requests)
        return TenantLoad(
            tenant=now.tenant,
            requests_per_second=sum(requests.values()) / self._seconds,
            errors_per_second=_num_errors(requests) / self._seconds,
            tokens_per_second=self._per_second(earlier.tokens if earlier else 0, now.tokens),
            queue_tokens=now.queued_tokens,
            open_requests=now.open_requests,
        )

    def _adapters(self) -> list[AdapterLoad]:
        earlier = {_identity(one): one for one in self._before.adapters} if self._before else {}
        found = [self._adapter(earlier.get(_identity(one)), one) for one in self._now.adapters]
        return sorted(found, key=lambda one: (-one.requests_per_second, one.task, one.tenant))

    def _adapter(self, earlier: LiveAdapter | None, now: LiveAdapter) -> AdapterLoad:
        requests = added(earlier.requests if earlier else None, now.requests)
        times = Growth.between(earlier.seconds if earlier else None, now.seconds)
        return AdapterLoad(
            tenant=now.tenant,
            task=f"{now.adapter}@{now.version}",
            requests_per_second=sum(requests.values()) / self._seconds,
            errors_per_second=_num_errors(requests) / self._seconds,
            p50_ms=_ms(times.quantile(0.5)),
            p99_ms=_ms(times.quantile(0.99)),
        )


def _identity(adapter: LiveAdapter) -> tuple[str, str, str]:
    return adapter.tenant, adapter.adapter, adapter.version


def _num_errors(requests: Mapping[str, int]) -> int:
    return sum(count for code, count in requests.items() if int(code) >= 400)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)


@dataclass(frozen=True)
class Lost:
    """The server gave no answer."""

    at: datetime
    error: PeltierError


async def read_load(client: AsyncClient, interval: float) -> AsyncGenerator[LoadSnapshot | Lost, None]:
    """A snapshot every `interval` seconds, or why there is none. Raises a `PeltierError` if the first reading fails.

    After a server was lost, the next snapshot covers the time since the last reading.
    """
    earlier = await client.live(_MAX_VERSIONS)
    while True:
        await asyncio.sleep(interval)
        try:
            now = await client.live(_MAX_VERSIONS)
        except PeltierError as error:
            yield Lost(datetime.now(UTC), error)
            continue
        yield create_snapshot(earlier, now)
        earlier = now
