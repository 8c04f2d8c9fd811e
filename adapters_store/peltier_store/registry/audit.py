"""The audit log, read in pages."""

from sqlalchemy import Connection, select

from peltier_store.registry.records import AuditEntry, AuditFilter
from peltier_store.registry.tables import AuditRow


def read_audit(connection: Connection, limit: int, before_id: int | None, wanted: AuditFilter) -> list[AuditEntry]:
    """At most `limit` of the wanted entries before that one, newest first."""
    entries = select(AuditRow.__table__).order_by(AuditRow.id.desc()).limit(limit)
    if before_id is not None:
        entries = entries.where(AuditRow.id < before_id)
    for column, value in ((AuditRow.tenant, wanted.tenant), (AuditRow.actor, wanted.actor)):
        if value is not None:
            entries = entries.where(column == value)
    if wanted.action is not None:
        entries = entries.where(AuditRow.action == wanted.action)
    if wanted.since is not None:
        entries = entries.where(AuditRow.at >= wanted.since)
    if wanted.until is not None:
        entries = entries.where(AuditRow.at < wanted.until)
    return [AuditEntry(**row._mapping) for row in connection.execute(entries)]
