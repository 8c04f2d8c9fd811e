"""One replica at this moment, for pages and tools that show what it does."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query, Request, Response
from peltier_client.errors import Draining, Forbidden, InvalidInput, NotReady, Unauthorized
from peltier_client.protocol import LiveBatches, LiveQuarantine, LiveQueue, LiveRunner, LiveSnapshot

from peltier_server.errors import describe_errors
from peltier_server.http.application import Accepted, get_lifecycle
from peltier_server.http.scoped_route import scoped_router
from peltier_server.metrics import snapshot
from peltier_server.service import Service

# At least as many as may have series of their own, and the one of the others.
_MAX_VERSIONS = 501
_MAX_QUARANTINE = 20

MaxVersions = Annotated[
    int, Query(alias="adapters", ge=0, le=_MAX_VERSIONS, description="How many adapter versions at most.")
]

# The snapshot names every tenant and the adapters in use.
router = scoped_router("metrics", "operations", "/v1/live")


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
            state="stuck" if service.watchdog.is_stuck else "well", restarts=snapshot.total(metrics.runner_restarts)
        ),
        seconds=snapshot.distribution(metrics.request_seconds),
        tenants=snapshot.tenants(metrics, request.app.state.enforcer.in_flight),
        adapters=snapshot.versions(metrics, max_versions),
        queue=_queue(service),
        batches=_batches(service),
        texts=snapshot.texts(metrics),
        tiers=snapshot.tiers(metrics, {"device": settings.memory.device_bytes, "host": settings.memory.host_bytes}),
        lookups=snapshot.counts(metrics.cache_requests),
        loads=snapshot.total(metrics.loads),
        uploads=snapshot.counts(metrics.uploads),
        quarantined=snapshot.total(metrics.quarantined),
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
        seconds=snapshot.distribution(service.metrics.queue_seconds),
    )


def _batches(service: Service) -> LiveBatches:
    metrics, settings = service.metrics, service.settings
    return LiveBatches(
        rows=snapshot.distribution(metrics.batch_rows),
        tokens=snapshot.distribution(metrics.batch_tokens),
        adapters=snapshot.distribution(metrics.batch_adapters),
        seconds=snapshot.distribution(metrics.compute_seconds),
        max_rows=settings.queue.max_batch_rows,
        max_tokens=settings.queue.max_batch_tokens,
    )
