"""Finds adapters and versions inside a transaction."""

from sqlalchemy import ColumnElement, Row, Select, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import InstrumentedAttribute

from peltier_store.registry.errors import AdapterUnknown, VersionUnknown
from peltier_store.registry.records import Version
from peltier_store.registry.tables import AdapterRow, VersionRow

LIVE = VersionRow.deleted_at.is_(None)


def select_versions(
    manifest: ColumnElement[str] | InstrumentedAttribute[str] = VersionRow.manifest,
) -> Select[*tuple[object, ...]]:
    """Every version, live or deleted. The columns are the fields of Version, in their order."""
    return select(
        AdapterRow.tenant,
        AdapterRow.name,
        VersionRow.number,
        VersionRow.digest,
        VersionRow.size_bytes,
        VersionRow.preset,
        manifest,
        VersionRow.created_at,
        VersionRow.created_by,
        VersionRow.deprecated_at,
        VersionRow.deprecation,
        VersionRow.deleted_at,
    ).join(AdapterRow, AdapterRow.id == VersionRow.adapter_id)


def version_of(row: Row[*tuple[object, ...]]) -> Version:
    """The version in a row of `select_versions`."""
    return Version(*row)  # type: ignore[arg-type]


async def read_versions(connection: AsyncConnection, *, deleted: bool) -> list[Version]:
    """Every live version, and the deleted ones too if asked, by tenant, name and number."""
    chosen = select_versions() if deleted else select_versions().where(LIVE)
    ordered = chosen.order_by(AdapterRow.tenant, AdapterRow.name, VersionRow.number)
    return [version_of(row) for row in await connection.execute(ordered)]


async def read_digests(connection: AsyncConnection) -> set[str]:
    """The digests of every version, live or deleted."""
    return set((await connection.execute(select(VersionRow.digest).distinct())).scalars())


async def read_names(connection: AsyncConnection, tenant: str) -> set[str]:
    """Every name that ever had a version in the tenant, also if all of them are purged."""
    return set((await connection.execute(select(AdapterRow.name).where(AdapterRow.tenant == tenant))).scalars())


async def find_version(connection: AsyncConnection, tenant: str, name: str, number: int) -> Version | None:
    """A version, live or deleted."""
    same = (AdapterRow.tenant == tenant, AdapterRow.name == name, VersionRow.number == number)
    row = (await connection.execute(select_versions().where(*same))).one_or_none()
    return None if row is None else version_of(row)


async def find_live_bytes(connection: AsyncConnection, tenant: str, name: str, digest: str) -> Version | None:
    """The live version of the adapter with these bytes; there is at most one."""
    same = (AdapterRow.tenant == tenant, AdapterRow.name == name, VersionRow.digest == digest)
    row = (await connection.execute(select_versions().where(*same, LIVE))).one_or_none()
    return None if row is None else version_of(row)


async def require_adapter(connection: AsyncConnection, tenant: str, name: str) -> int:
    """The id of an adapter that has a live version; raises AdapterUnknown."""
    live = select(VersionRow.number).where(VersionRow.adapter_id == AdapterRow.id, LIVE).exists()
    found = select(AdapterRow.id).where(AdapterRow.tenant == tenant, AdapterRow.name == name, live)
    adapter_id = (await connection.execute(found)).scalar_one_or_none()
    if adapter_id is None:
        raise AdapterUnknown(f"adapter {name!r} does not exist")
    return adapter_id


async def require_live(connection: AsyncConnection, adapter_id: int, name: str, *numbers: int) -> None:
    """Raises VersionUnknown unless all of these versions of the adapter are live."""
    live = select(VersionRow.number).where(VersionRow.adapter_id == adapter_id, LIVE, VersionRow.number.in_(numbers))
    missing = set(numbers) - set((await connection.execute(live)).scalars())
    if missing:
        raise VersionUnknown(f"adapter {name!r} has no version {min(missing)}")
