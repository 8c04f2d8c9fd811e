"""What the caller's adapters answered on this replica, and where they are in its memory."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from itertools import islice

from peltier_client.errors import Draining, Forbidden, InvalidInput, NotReady, QuotaExceeded, Unauthorized
from peltier_client.protocol import ActivityResponse, Resident, Tier, VersionActivity

from peltier_server.catalog.entry import Entry
from peltier_server.context import VersionLabels
from peltier_server.errors import describe_errors
from peltier_server.http.dependencies import Accepted, Context
from peltier_server.http.scoped_route import scoped_router
from peltier_server.metrics.version_metrics import OTHER
from peltier_server.residency.slots import ResidentTier
from peltier_server.routes.paging import MAX_PAGE, Limit
from peltier_server.service import Service

_ERRORS = (Unauthorized, Forbidden, InvalidInput, QuotaExceeded, NotReady, Draining)

router = scoped_router("predict", "operations", "/v1/activity")


@router.get("", responses=describe_errors(*_ERRORS))
async def read_activity(context: Context, service: Accepted, limit: Limit = MAX_PAGE) -> ActivityResponse:
    """Requests, errors, latency and tier of the caller's adapters on this replica since it started."""
    tiers = {key.digest: tier for key, tier in service.slots.residents() if key.tenant == context.tenant}
    versions = list(islice(_versions(service, context.tenant, tiers), limit))
    residents = [Resident(digest=digest, tier=tier) for digest, tier in list(tiers.items())[:limit]]
    return ActivityResponse(versions=versions, residents=residents, num_residents=len(tiers))


def _versions(service: Service, tenant: str, tiers: Mapping[str, ResidentTier]) -> Iterator[VersionActivity]:
    """The versions that are still there, of those with requests; the most asked first."""
    busiest = service.metrics.versions.busiest(service.settings.max_metric_versions + 1)
    for labels, (answers, latency) in busiest.items():
        entry = _find(service, tenant, labels)
        if entry is not None:
            tier: Tier = tiers.get(entry.digest, "store")
            yield VersionActivity(
                name=labels.adapter,
                version=entry.number,
                tier=tier,
                requests=sum(answers.values()),
                errors=sum(count for code, count in answers.items() if int(code) >= HTTPStatus.BAD_REQUEST),
                p50_seconds=latency.quantile(0.5),
                p99_seconds=latency.quantile(0.99),
            )


def _find(service: Service, tenant: str, labels: VersionLabels) -> Entry | None:
    if labels.tenant != tenant or labels == OTHER:
        return None
    published = service.catalog.find(tenant, labels.adapter)
    return None if published is None else published.entries.get(int(labels.version))
