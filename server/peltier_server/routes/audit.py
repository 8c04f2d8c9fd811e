"""The audit log: who changed what."""

from dataclasses import asdict
from typing import Annotated

from fastapi import Query
from peltier_client.errors import Draining, Forbidden, InvalidInput, NotReady, Unauthorized, Unavailable
from peltier_client.protocol import NAME_PATTERN, AuditPage, AuditRecord

from peltier_server.errors import describe_errors
from peltier_server.http.dependencies import Accepted
from peltier_server.http.scoped_route import scoped_router
from peltier_server.routes.paging import Limit, NumberCursor

Tenant = Annotated[str | None, Query(pattern=f"^{NAME_PATTERN}$", description="Only what concerns this tenant.")]

router = scoped_router("admin", "operations", "/v1/audit")


@router.get("", responses=describe_errors(Unauthorized, Forbidden, InvalidInput, NotReady, Draining, Unavailable))
async def read_audit(
    service: Accepted, limit: Limit = 100, cursor: NumberCursor = "", tenant: Tenant = None
) -> AuditPage:
    """Every change of what is published, of aliases, tenants and keys, newest first; for operators."""
    before_id = int(cursor) if cursor else None
    entries = await service.store.registry.audit(limit=limit + 1, before_id=before_id, tenant=tenant)
    records = [AuditRecord(**asdict(entry)) for entry in entries[:limit]]
    return AuditPage(records=records, next_cursor=str(records[-1].id) if len(entries) > limit else None)
