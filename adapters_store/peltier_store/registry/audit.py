"""The audit log, read in pages."""

from sqlalchemy import Connection, select

from peltier_store.registry.records import AuditEntry
from peltier_store.registry.tables import AuditRow


def read_audit(connection: Connection, limit: int, before_id: int | None, tenant: str | None) -> list[AuditEntry]:
    """At most `limit` entries before that one, newest first, of all tenants or of one."""
    entries = select(AuditRow.__table__).order_by(AuditRow.id.desc()).limit(limit)
    if before_id is not None:
        entries = entries.where(AuditRow.id < before_id)
    if tenant is not None:
        entries = entries.where(AuditRow.tenant == tenant)
    return [AuditEntry(**row._mapping) for row in connection.execute(entries)]
