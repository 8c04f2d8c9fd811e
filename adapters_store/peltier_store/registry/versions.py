"""The life of a version: it is published under a number that is never reused, and may have the report of its training.
It may be deprecated, deleted and undeleted, and is purged after the grace period. Its adapter may be public, and may be
pinned: then every replica keeps it on its device."""

from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta

from peltier_client.protocol.adapters import AdapterPin
from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, delete, insert, select, update

from peltier_store.registry import aliases
from peltier_store.registry.claims import consume
from peltier_store.registry.errors import RegistryConflict, VersionUnknown
from peltier_store.registry.lookup import (
    LIVE,
    find_live_bytes,
    find_version,
    read_digests,
    require_adapter,
    require_live,
)
from peltier_store.registry.records import Reservation, VersionRecord, check_text
from peltier_store.registry.tables import ENDS_WITH_VERSION, AdapterRow, Base, ReportRow, VersionRow
from peltier_store.registry.tenants import require_quotas, require_room_for_adapter, require_room_for_bytes
from peltier_store.registry.transactions import WriteTransaction

_INSERT_VERSION = insert(VersionRow).inline()
_DRAFTED = ("digest", "size_bytes", "preset", "manifest", "created_at", "created_by")
_OF_ADAPTER = AdapterRow.id, AdapterRow.last_number
_COUNT_VERSION = (
    update(AdapterRow)
    .where(AdapterRow.tenant == bindparam("its_tenant"), AdapterRow.name == bindparam("its_name"))
    .values(last_number=AdapterRow.last_number + 1, revision=bindparam("its_revision"))
    .returning(*_OF_ADAPTER)
)
_INSERT_ADAPTER = insert(AdapterRow).returning(*_OF_ADAPTER)


def publish(
    writing: WriteTransaction, draft: VersionRecord, reservation: Reservation, report: str | None
) -> tuple[VersionRecord, bool]:
    """Numbers the draft and makes it live, unless a live version has its bytes; then gives it the report."""
    existing = require_room(
        writing.connection, draft.tenant, draft.name, digest=draft.digest, size_bytes=draft.size_bytes
    )
    consume(writing.connection, reservation)
    version = existing or _insert(writing, replace(draft, created_at=writing.at, created_by=writing.actor))
    # That a version is published is in the audit log already.
    if report is not None and set_report(writing, version, report) and existing is not None:
        writing.audit(version.tenant, "set_report", f"{version.name}@{version.number}")
    return version, existing is None


def require_room(
    connection: Connection, tenant: str, name: str, *, digest: str, size_bytes: int
) -> VersionRecord | None:
    """The live version that has these bytes already. Raises TenantUnknown, or QuotaReached if they would be refused."""
    quotas = require_quotas(connection, tenant)
    existing = find_live_bytes(connection, tenant, name, digest)
    if existing is None:
        require_room_for_adapter(connection, quotas, tenant, name)
        require_room_for_bytes(connection, quotas, tenant, size_bytes)
    return existing


def _insert(writing: WriteTransaction, draft: VersionRecord) -> VersionRecord:
    adapter_id, number = _next_number(writing, draft)
    row = {name: getattr(draft, name) for name in _DRAFTED}
    its = {"adapter_id": adapter_id, "number": number, "revision": writing.revision}
    writing.connection.execute(_INSERT_VERSION, row | its)
    writing.audit(draft.tenant, "publish", f"{draft.name}@{number}", digest=draft.digest)
    return replace(draft, number=number)


def _next_number(writing: WriteTransaction, draft: VersionRecord) -> tuple[int, int]:
    # Writers are serialised, so no other one inserts the row in between.
    its = {"its_tenant": draft.tenant, "its_name": draft.name, "its_revision": writing.revision}
    row = writing.connection.execute(_COUNT_VERSION, its).one_or_none()
    if row is None:
        first = {"tenant": draft.tenant, "name": draft.name, "last_number": 1, "is_public": False}
        row = writing.connection.execute(_INSERT_ADAPTER, {**first, "revision": writing.revision}).one()
    return row.id, row.last_number


def deprecate(writing: WriteTransaction, tenant: str, name: str, number: int, reason: str | None) -> VersionRecord:
    """Marks a live version as deprecated; a `reason` of None removes the mark."""
    check_text("reason", reason or "")
    adapter_id = require_adapter(writing.connection, tenant, name)
    require_live(writing.connection, adapter_id, name, number)
    version = find_version(writing.connection, tenant, name, number)
    assert version is not None
    deprecated_at = None if reason is None else writing.at
    mark(writing, version, deprecated_at=deprecated_at, deprecation=reason)
    writing.audit(tenant, "deprecate", f"{name}@{number}", reason=reason)
    return replace(version, deprecated_at=deprecated_at, deprecation=reason)


def set_public(writing: WriteTransaction, tenant: str, name: str, public: bool) -> None:
    adapter_id = require_adapter(writing.connection, tenant, name)
    changed = update(AdapterRow).where(AdapterRow.id == adapter_id)
    writing.connection.execute(changed.values(is_public=public, revision=writing.revision))
    writing.audit(tenant, "set_public", name, public=public)


def set_pin(writing: WriteTransaction, tenant: str, name: str) -> AdapterPin:
    """Pins the adapter; a pin that is there already stays as it is."""
    adapter_id, pin = _find_pin(writing.connection, tenant, name)
    if pin is None:
        pin = AdapterPin(pinned_at=writing.at, pinned_by=writing.actor)
        _write_pin(writing, adapter_id, **pin.model_dump())
        writing.audit(tenant, "pin", name)
    return pin


def release_pin(writing: WriteTransaction, tenant: str, name: str) -> None:
    """Removes the pin of an adapter, if it has one."""
    adapter_id, pin = _find_pin(writing.connection, tenant, name)
    if pin is not None:
        _write_pin(writing, adapter_id, pinned_at=None, pinned_by=None)
        writing.audit(tenant, "unpin", name)


def pin_of(row: Row[*tuple[object, ...]]) -> AdapterPin | None:
    """The pin in a row of `adapters`."""
    return None if row.pinned_at is None else AdapterPin(pinned_at=row.pinned_at, pinned_by=row.pinned_by)


def _find_pin(connection: Connection, tenant: str, name: str) -> tuple[int, AdapterPin | None]:
    adapter_id = require_adapter(connection, tenant, name)
    return adapter_id, pin_of(connection.execute(select(AdapterRow.__table__).where(AdapterRow.id == adapter_id)).one())


def _write_pin(writing: WriteTransaction, adapter_id: int, **pin: datetime | str | None) -> None:
    changed = update(AdapterRow).where(AdapterRow.id == adapter_id)
    writing.connection.execute(changed.values(**pin, revision=writing.revision))


def mark(writing: WriteTransaction, version: VersionRecord, **marks: datetime | str | int | None) -> None:
    """Sets columns of a version's row."""
    adapter_id = writing.connection.execute(_owner(version)).scalar_one()
    chosen = update(VersionRow).where(VersionRow.adapter_id == adapter_id, VersionRow.number == version.number)
    writing.connection.execute(chosen.values(**marks))
    writing.stamp_adapter(adapter_id)


def delete_version(writing: WriteTransaction, tenant: str, name: str, number: int) -> None:
    adapter_id = require_adapter(writing.connection, tenant, name)
    require_live(writing.connection, adapter_id, name, number)
    users = aliases.aliases_of_version(writing.connection, adapter_id, number)
    if users:
        raise RegistryConflict(
            f"version {number} of adapter {name!r} is in use by its alias {users[0]!r}; move or delete the alias first"
        )
    _mark_deleted(writing, adapter_id, VersionRow.number == number)
    _end_rows(writing, tenant=tenant, name=name, version=number)
    writing.audit(tenant, "delete_version", f"{name}@{number}")


def delete_adapter(writing: WriteTransaction, tenant: str, name: str) -> int:
    """Marks every live version as deleted and deletes the aliases; returns how many versions there were."""
    adapter_id = require_adapter(writing.connection, tenant, name)
    live = select(VersionRow.number).where(VersionRow.adapter_id == adapter_id, LIVE).order_by(VersionRow.number)
    numbers = list(writing.connection.execute(live).scalars())
    aliases.delete_all(writing, adapter_id)
    _mark_deleted(writing, adapter_id, LIVE)
    _end_rows(writing, tenant=tenant, name=name)
    writing.audit(tenant, "delete_adapter", name, versions=numbers)
    return len(numbers)


def undelete(writing: WriteTransaction, tenant: str, name: str, number: int) -> VersionRecord:
    version = find_version(writing.connection, tenant, name, number)
    if version is None:
        raise VersionUnknown(
            f"adapter {name!r} has no version {number} to undelete: it never existed, or its grace period is over"
        )
    if version.deleted_at is None:
        return version
    twin = find_live_bytes(writing.connection, tenant, name, version.digest)
    if twin is not None:
        raise RegistryConflict(f"the bytes of version {number} of adapter {name!r} are live as version {twin.number}")
    quotas = require_quotas(writing.connection, tenant)
    require_room_for_adapter(writing.connection, quotas, tenant, name)
    mark(writing, version, deleted_at=None, revision=writing.revision)
    writing.audit(tenant, "undelete", f"{name}@{number}")
    return replace(version, deleted_at=None)


def purge(writing: WriteTransaction, grace: timedelta) -> set[str]:
    """Removes versions deleted longer ago; returns the digests that no remaining version has."""
    condition = VersionRow.deleted_at < writing.at - grace
    found = (
        select(VersionRow.adapter_id, AdapterRow.tenant, AdapterRow.name, VersionRow.number, VersionRow.digest)
        .join(AdapterRow, AdapterRow.id == VersionRow.adapter_id)
        .where(condition)
    )
    over = writing.connection.execute(found).all()
    writing.connection.execute(delete(VersionRow).where(condition))
    purged: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for row in over:
        purged[row.adapter_id, row.tenant, row.name].append(row.number)
    for (adapter_id, tenant, name), numbers in purged.items():
        writing.stamp_adapter(adapter_id)
        writing.audit(tenant, "purge", name, versions=sorted(numbers))
    return {row.digest for row in over} - read_digests(writing.connection)


def _end_rows(writing: WriteTransaction, **own: object) -> None:
    """Deletes the rows that end with a version, for good: an undeleted version has none."""
    for table in Base.metadata.tables.values():
        if table.info.get(ENDS_WITH_VERSION):
            same = [table.c[name] == value for name, value in own.items()]
            writing.connection.execute(delete(table).where(*same))


def _mark_deleted(writing: WriteTransaction, adapter_id: int, condition: ColumnElement[bool]) -> None:
    chosen = update(VersionRow).where(VersionRow.adapter_id == adapter_id, LIVE, condition)
    writing.connection.execute(chosen.values(deleted_at=writing.at))
    writing.stamp_adapter(adapter_id)
    # A later upload under this name must not be public or pinned because an earlier adapter was.
    live = select(VersionRow.number).where(VersionRow.adapter_id == adapter_id, LIVE).exists()
    closed = (
        update(AdapterRow)
        .where(AdapterRow.id == adapter_id, ~live)
        .values(is_public=False, pinned_at=None, pinned_by=None)
    )
    writing.connection.execute(closed)


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
    size_bytes = _report_bytes(report)
    quotas = require_quotas(connection, version.tenant)
    require_room_for_bytes(connection, quotas, version.tenant, size_bytes - _report_bytes(former))
    adapter_id = connection.execute(_owner(version)).scalar_one()
    connection.execute(delete(ReportRow).where(ReportRow.adapter_id == adapter_id, ReportRow.number == version.number))
    row = {"adapter_id": adapter_id, "number": version.number, "report": report, "size_bytes": size_bytes}
    connection.execute(insert(ReportRow), row)
    return True


def _report_bytes(report: str | None) -> int:
    """What a report counts for the quota of stored bytes."""
    return 0 if report is None else len(report.encode())


def _owner(version: VersionRecord) -> Select[int]:
    return select(AdapterRow.id).where(AdapterRow.tenant == version.tenant, AdapterRow.name == version.name)
