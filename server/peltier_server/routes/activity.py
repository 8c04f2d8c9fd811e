"""What the caller's adapters answered on this replica, and where they are in its memory."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from itertools import islice

from fastapi import Response
from peltier_client.errors import Draining, Forbidden, InvalidInput, NotReady, QuotaExceeded, Unauthorized
from peltier_client.protocol import ActivityResponse, Resident, Tier, VersionActivity

from peltier_server.catalog.published import Entry
from peltier_server.context import VersionLabels
from peltier_server.errors import describe_errors
from peltier_server.http.application import MAX_PAGE, Accepted, Context, Limit, Threads
from peltier_server.http.scoped_route import scoped_router
from peltier_server.metrics.series import OTHER, BusyVersions
from peltier_server.residency.slots import ResidentTier
from peltier_server.service import Service

_ERRORS = (Unauthorized, Forbidden, InvalidInput, QuotaExceeded, NotReady, Draining)

router = scoped_router("predict", "operations", "/v1/activity")


@router.get("", response_model=ActivityResponse, responses=describe_errors(*_ERRORS))
async def read_activity(context: Context, service: Accepted, threads: Threads, limit: Limit = MAX_PAGE) -> Response:
    """Requests, errors, latency, drift and tier of the caller's adapters on this replica since it started. They are
    of the requests of all callers, also of other tenants where an adapter is public."""
    tenant = context.tenant
    busiest = service.metrics.busiest(service.settings.limits.max_metric_versions + 1)
    # To look up the tier of an adapter takes as long as to tokenise a few characters.
    cost = service.catalog.count(tenant)
    activity = await threads.run(tenant, cost, lambda: _describe(service, tenant, busiest, limit).model_dump_json())
    return Response(activity, media_type="application/json")


def _describe(service: Service, tenant: str, busiest: BusyVersions, limit: int) -> ActivityResponse:
    tiers = _tiers(service, tenant)
    versions = list(islice(_versions(service, tenant, busiest, tiers), limit))
    # Those on the device come first.
    residents = [Resident(digest=digest, tier=tier) for digest, tier in sorted(tiers.items(), key=lambda one: one[1])]
    return ActivityResponse(versions=versions, residents=residents[:limit], num_residents=len(residents))


def _tiers(service: Service, tenant: str) -> Mapping[str, ResidentTier]:
    """The tier of each of the tenant's artifacts in memory. Takes no longer with more adapters of other tenants."""
    found = ((entry, service.slots.tier(entry.owned)) for entry in service.catalog.entries_of(tenant))
    return {entry.digest: tier for entry, tier in found if tier is not None}


def _versions(
    service: Service, tenant: str, busiest: BusyVersions, tiers: Mapping[str, ResidentTier]
) -> Iterator[VersionActivity]:
    """The versions that are still there, of those with requests; the most asked first."""
    for labels, (answers, latency) in busiest.items():
        entry = _find(service, tenant, labels)
        if entry is not None:
            tier: Tier = tiers.get(entry.digest, "store")
            drift, followed = service.metrics.drift.of(labels), service.metrics.windows.followed.get(labels)
            yield VersionActivity(
                name=labels.adapter,
                version=entry.number,
                tier=tier,
                requests=sum(answers.values()),
                errors=sum(count for code, count in answers.items() if int(code) >= HTTPStatus.BAD_REQUEST),
                p50_seconds=latency.quantile(0.5),
                p99_seconds=latency.quantile(0.99),
                answer_drift=drift.answers,
                input_drift=drift.inputs,
                judged=0 if followed is None else followed.right + followed.wrong,
                judged_right=0 if followed is None else followed.right,
            )


def _find(service: Service, tenant: str, labels: VersionLabels) -> Entry | None:
    if labels.tenant != tenant or labels == OTHER:
        return None
    published = service.catalog.find(tenant, labels.adapter)
    return None if published is None else published.entries.get(int(labels.version))
