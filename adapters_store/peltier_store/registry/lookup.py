"""Finds adapters and versions inside a transaction."""

from dataclasses import fields
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Row, Select, bindparam, select
from sqlalchemy.orm import InstrumentedAttribute

from peltier_store.registry.errors import AdapterUnknown, VersionUnknown
from peltier_store.registry.records import VersionRecord
from peltier_store.registry.tables import IS_BLOB, AdapterRow, Base, VersionRow

LIVE = VersionRow.deleted_at.is_(None)


def select_versions(
    manifest: ColumnElement[str] | InstrumentedAttribute[str] = VersionRow.manifest,
) -> Select[*tuple[object, ...]]:
    """Every version, live or deleted. The columns are the fields of `VersionRecord`, in their order."""
    own = {"tenant": AdapterRow.tenant, "name": AdapterRow.name, "manifest": manifest}
    names = [field.name for field in fields(VersionRecord)]
    columns = [own[name] if name in own else getattr(VersionRow, name) for name in names]
    return select(*columns).join(AdapterRow, AdapterRow.id == VersionRow.adapter_id)


_LIVE_BYTES = select_versions().where(
    AdapterRow.tenant == bindparam("tenant"),
    AdapterRow.name == bindparam("name"),
    VersionRow.digest == bindparam("digest"),
    LIVE,
)


def version_of(row: Row[*tuple[object, ...]]) -> VersionRecord:
    return VersionRecord(*row)  # type: ignore[arg-type]


def read_versions(connection: Connection, *, deleted: bool = False) -> list[VersionRecord]:
    """Every live version, by tenant, name and number; with `deleted` also those that can be undeleted."""
    chosen = select_versions() if deleted else select_versions().where(LIVE)
    ordered = chosen.order_by(AdapterRow.tenant, AdapterRow.name, VersionRow.number)
    return [version_of(row) for row in connection.execute(ordered)]


def marked_columns(mark: str) -> list[Column[Any]]:
    """The columns with this mark, of all tables."""
    return [column for table in Base.metadata.tables.values() for column in table.columns if mark in column.info]


def read_digests(connection: Connection) -> set[str]:
    """The digests of every blob that a row needs."""
    columns = [connection.execute(select(column).distinct()).scalars() for column in marked_columns(IS_BLOB)]
    return {digest for column in columns for digest in column if digest is not None}


def read_names(connection: Connection, tenant: str) -> set[str]:
    """Every name that ever had a version in the tenant, also if all of them are purged."""
    return set(connection.execute(select(AdapterRow.name).where(AdapterRow.tenant == tenant)).scalars())


def find_version(connection: Connection, tenant: str, name: str, number: int) -> VersionRecord | None:
    """A version with its manifest, live or deleted; None if it was never published, or is purged."""
    same = (AdapterRow.tenant == tenant, AdapterRow.name == name, VersionRow.number == number)
    row = connection.execute(select_versions().where(*same)).one_or_none()
    return None if row is None else version_of(row)


def find_live_bytes(connection: Connection, tenant: str, name: str, digest: str) -> VersionRecord | None:
    """The live version of the adapter with these bytes; there is at most one."""
    row = connection.execute(_LIVE_BYTES, {"tenant": tenant, "name": name, "digest": digest}).one_or_none()
    return None if row is None else version_of(row)


def require_adapter(connection: Connection, tenant: str, name: str) -> int:
    """The id of an adapter that has a live version; raises AdapterUnknown."""
    live = select(VersionRow.number).where(VersionRow.adapter_id == AdapterRow.id, LIVE).exists()
    found = select(AdapterRow.id).where(AdapterRow.tenant == tenant, AdapterRow.name == name, live)
    adapter_id = connection.execute(found).scalar_one_or_none()
    if adapter_id is None:
        raise AdapterUnknown(f"adapter {name!r} does not exist")
    return adapter_id


def require_live(connection: Connection, adapter_id: int, name: str, *numbers: int) -> None:
    """Raises VersionUnknown unless all of these versions of the adapter are live."""
    live = select(VersionRow.number).where(VersionRow.adapter_id == adapter_id, LIVE, VersionRow.number.in_(numbers))
    missing = set(numbers) - set(connection.execute(live).scalars())
    if missing:
        raise VersionUnknown(f"adapter {name!r} has no version {min(missing)}")
