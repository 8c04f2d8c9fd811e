"""The audit log: who changed what."""

from dataclasses import asdict
from typing import Annotated

from fastapi import Query
from peltier_client.errors import Draining, Forbidden, InvalidInput, NotReady, Unauthorized, Unavailable
from peltier_client.protocol import NAME_PATTERN, AuditPage, AuditRecord
from peltier_store.registry import AuditFilter
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from peltier_server.errors import describe_errors
from peltier_server.http.application import MAX_PAGE, Accepted
from peltier_server.http.scoped_route import scoped_router

# Of an actor, `key:` and the prefix of a key or the subject of a token; no action is longer.
_MAX_WORD_LEN = 320
_PLAIN = r"^[^\x00]+$"

Word = Annotated[str, Field(pattern=_PLAIN, max_length=_MAX_WORD_LEN)]


class AuditQuery(BaseModel):
    """The wanted page of the wanted records."""

    model_config = ConfigDict(extra="ignore")

    limit: int = Field(100, ge=1, le=MAX_PAGE, description="How many entries at most.")
    cursor: str = Field("", pattern="^[0-9]{0,18}$", description="`next_cursor` of the page before.")
    tenant: str | None = Field(None, pattern=f"^{NAME_PATTERN}$", description="Only what concerns this tenant.")
    actor: Word | None = Field(None, description="Only what this actor did, such as `key:abcdefgh`.")
    action: Word | None = Field(None, description="Only this action, such as `publish` or `revoke_key`.")
    since: AwareDatetime | None = Field(None, description="Only from this time on.")
    until: AwareDatetime | None = Field(None, description="Only before this time.")


router = scoped_router("admin", "operations", "/v1/audit")


@router.get("", responses=describe_errors(Unauthorized, Forbidden, InvalidInput, NotReady, Draining, Unavailable))
async def read_audit(service: Accepted, query: Annotated[AuditQuery, Query()]) -> AuditPage:
    """Every change of what is published, of aliases, tenants and keys, newest first; for operators."""
    before_id = int(query.cursor) if query.cursor else None
    wanted = AuditFilter(query.tenant, query.actor, query.action, query.since, query.until)
    entries = await service.store.registry.audit(wanted, limit=query.limit + 1, before_id=before_id)
    records = [AuditRecord(**asdict(entry)) for entry in entries[: query.limit]]
    return AuditPage(records=records, next_cursor=str(records[-1].id) if len(entries) > query.limit else None)
