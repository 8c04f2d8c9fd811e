"""One replica at this moment, for pages and tools that show what it does."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query, Request, Response
from peltier_client.errors import Draining, Forbidden, InvalidInput, NotReady, Unauthorized
from peltier_client.protocol import (
    Distribution,
    LiveAdapter,
    LiveBatches,
    LiveQuarantine,
    LiveQueue,
    LiveRunner,
    LiveSnapshot,
    LiveTenant,
    LiveTexts,
    LiveTier,
)
from prometheus_client import Counter, Gauge
from prometheus_client.samples import Sample

from peltier_server.errors import describe_errors
from peltier_server.http.application import Accepted, get_lifecycle
from peltier_server.http.scoped_route import scoped_router
from peltier_server.metrics.metrics import Metrics
from peltier_server.metrics.series import Series
from peltier_server.service import Service

# At least as many as may have series of their own, and the one of the others.
_MAX_VERSIONS = 501
_MAX_QUARANTINE = 20

MaxVersions = Annotated[
    int, Query(alias="adapters", ge=0, le=_MAX_VERSIONS, description="How many adapter versions at most.")
]

# The snapshot names every tenant and the adapters in use.
router = scoped_router("metrics", "operations", "/v1/live")
_COUNTER = "_total"


@router.get(
    "",
    response_model=LiveSnapshot,
    responses=describe_errors(Unauthorized, Forbidden, InvalidInput, NotReady, Draining),
)
async def get_live(request: Request, service: Accepted, max_versions: MaxVersions = 100) -> Response:
    """What this replica did since its start and what it holds now: requests, queue, batches, tiers, quarantine.

    Of several replicas it shows the one that answers. Poll it every second or more, and take differences.
    """
    body = _snapshot(request, service, max_versions).model_dump_json()
    return Response(body, media_type="application/json", headers={"cache-control": "no-store"})


def _snapshot(request: Request, service: Service, max_versions: int) -> LiveSnapshot:
    metrics, settings = service.metrics, service.settings
    reason = get_lifecycle(request).problem
    return LiveSnapshot(
        at=datetime.now(UTC),
        replica=request.app.state.replica,
        started_at=metrics.started_at,
        ready=reason is None,
        reason=reason,
        runner=LiveRunner(
            state="stuck" if service.watchdog.is_stuck else "well", restarts=_total(metrics.runner_restarts)
        ),
        seconds=_distribution(metrics.request_seconds),
        tenants=_tenants(metrics, request.app.state.enforcer.in_flight),
        adapters=_adapters(metrics, max_versions),
        queue=_queue(service),
        batches=_batches(service),
        texts=_texts(metrics),
        tiers=_tiers(metrics, {"device": settings.memory.device_bytes, "host": settings.memory.host_bytes}),
        lookups=_counts(metrics.cache_requests),
        loads=_total(metrics.loads),
        uploads=_counts(metrics.uploads),
        quarantined=_total(metrics.quarantined),
        quarantine=[
            LiveQuarantine(tenant=tenant, **version.model_dump())
            for tenant, version in service.quarantine.first(_MAX_QUARANTINE)
        ],
    )


def _queue(service: Service) -> LiveQueue:
    return LiveQueue(
        rows=service.batcher.queued_rows,
        tokens=service.batcher.queued_tokens,
        max_tokens=service.settings.queue.max_queue_tokens,
        seconds=_distribution(service.metrics.queue_seconds),
    )


def _batches(service: Service) -> LiveBatches:
    metrics, settings = service.metrics, service.settings
    return LiveBatches(
        rows=_distribution(metrics.batch_rows),
        tokens=_distribution(metrics.batch_tokens),
        adapters=_distribution(metrics.batch_adapters),
        seconds=_distribution(metrics.compute_seconds),
        max_rows=settings.queue.max_batch_rows,
        max_tokens=settings.queue.max_batch_tokens,
    )


def _total(metric: Counter | Gauge) -> int:
    """The value of a metric without labels."""
    return int(_samples(metric)[0].value)


def _counts(metric: Counter | Gauge) -> dict[str, int]:
    """The values of a metric with one label."""
    return {next(iter(one.labels.values())): int(one.value) for one in _samples(metric)}


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


def _distribution(series: Series) -> Distribution:
    """The observations of a series."""
    return Distribution(bounds=list(series.bounds), counts=list(series.counts), total=series.total)


def _tenants(metrics: Metrics, open_requests: Mapping[str, int]) -> list[LiveTenant]:
    """What the tenants with a label used, in order of name; `open_requests` is by tenant."""
    requests = _nested_counts(metrics.requests)
    rows, tokens = _counts(metrics.tenant_rows), _counts(metrics.tenant_tokens)
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


def _adapters(metrics: Metrics, max_versions: int) -> list[LiveAdapter]:
    """The versions with most requests."""
    return [
        LiveAdapter(**labels._asdict(), requests=dict(requests), seconds=_distribution(latency))
        for labels, (requests, latency) in metrics.busiest(max_versions).items()
    ]


def _texts(metrics: Metrics) -> LiveTexts:
    """What was generated."""
    return LiveTexts(
        tokens=_total(metrics.generated_tokens),
        step_seconds=_distribution(metrics.decode_step_seconds),
        rows=_total(metrics.decode_rows),
    )


def _tiers(metrics: Metrics, max_bytes: Mapping[str, int]) -> list[LiveTier]:
    """The tiers with their bounds."""
    held, taken, evicted = _counts(metrics.adapters), _counts(metrics.adapter_bytes), _counts(metrics.evictions)
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
