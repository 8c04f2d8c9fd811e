"""Reports of trainings, each of one version."""

from sqlalchemy import Connection, Select, delete, insert, select

from peltier_store.registry.records import VersionRecord
from peltier_store.registry.tables import AdapterRow, ReportRow
from peltier_store.registry.tenants import require_quotas, require_room_for_bytes
from peltier_store.registry.transactions import WriteTransaction


def find_report(connection: Connection, tenant: str, name: str, number: int) -> str | None:
    """The report of a version, live or deleted; None if it has none."""
    chosen = select(ReportRow.report).join(AdapterRow, AdapterRow.id == ReportRow.adapter_id)
    same = (AdapterRow.tenant == tenant, AdapterRow.name == name, ReportRow.number == number)
    return connection.execute(chosen.where(*same)).scalar_one_or_none()


def set_report(writing: WriteTransaction, version: VersionRecord, report: str) -> bool:
    """Gives the version this report, in place of the one that it has; whether that is a change. Raises QuotaReached."""
    connection = writing.connection
    former = find_report(connection, version.tenant, version.name, version.number)
    if former == report:
        return False
    size_bytes = num_bytes(report)
    quotas = require_quotas(connection, version.tenant)
    require_room_for_bytes(connection, quotas, version.tenant, size_bytes - num_bytes(former))
    adapter_id = connection.execute(_owner(version)).scalar_one()
    connection.execute(delete(ReportRow).where(ReportRow.adapter_id == adapter_id, ReportRow.number == version.number))
    row = {"adapter_id": adapter_id, "number": version.number, "report": report, "size_bytes": size_bytes}
    connection.execute(insert(ReportRow), row)
    return True


def num_bytes(report: str | None) -> int:
    """What a report counts for the quota of stored bytes."""
    return 0 if report is None else len(report.encode())


def _owner(version: VersionRecord) -> Select[int]:
    return select(AdapterRow.id).where(AdapterRow.tenant == version.tenant, AdapterRow.name == version.name)
