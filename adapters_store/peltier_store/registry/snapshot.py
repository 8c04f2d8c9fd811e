"""Reads the changes since a revision, with which a replica updates its memory."""

from collections import defaultdict

from sqlalchemy import case, select
from sqlalchemy.ext.asyncio import AsyncConnection

from peltier_store.registry.aliases import alias_of, select_aliases
from peltier_store.registry.keys import key_of, select_keys
from peltier_store.registry.lookup import LIVE, select_versions, version_of
from peltier_store.registry.records import AdapterRecord, Alias, Key, Snapshot, Tenant, Version
from peltier_store.registry.tables import AdapterRow, AliasRow, KeyRow, TenantRow, VersionRow
from peltier_store.registry.tenants import select_tenants, tenant_of
from peltier_store.registry.transactions import read_revision


async def read_snapshot(connection: AsyncConnection, since: int) -> Snapshot:
    """The current revision, and every adapter, tenant and key that changed after `since`."""
    revision = await read_revision(connection)
    if revision == since:
        return Snapshot(revision, (), ())
    return Snapshot(
        revision,
        await _adapters(connection, since),
        await _tenants(connection, since),
        await _keys(connection, since),
    )


async def _tenants(connection: AsyncConnection, since: int) -> tuple[Tenant, ...]:
    changed = select_tenants().where(TenantRow.revision > since)
    return tuple(tenant_of(row) for row in await connection.execute(changed))


async def _keys(connection: AsyncConnection, since: int) -> tuple[Key, ...]:
    return tuple(key_of(row) for row in await connection.execute(select_keys().where(KeyRow.revision > since)))


async def _adapters(connection: AsyncConnection, since: int) -> tuple[AdapterRecord, ...]:
    changed = AdapterRow.revision > since
    versions: dict[tuple[str, str], list[Version]] = defaultdict(list)
    # A replica keeps the manifests it has read, and does not need those of deleted versions, which may be thousands.
    unread = case((LIVE & (VersionRow.revision > since), VersionRow.manifest), else_="")
    ordered = select_versions(unread).where(changed).order_by(VersionRow.adapter_id, VersionRow.number)
    for row in await connection.execute(ordered):
        versions[row.tenant, row.name].append(version_of(row))
    aliases: dict[int, list[Alias]] = defaultdict(list)
    named = select_aliases().join(AdapterRow, AdapterRow.id == AliasRow.adapter_id).where(changed)
    for row in await connection.execute(named.order_by(AliasRow.alias)):
        aliases[row.adapter_id].append(alias_of(row))
    columns = select(AdapterRow.__table__).where(changed).order_by(AdapterRow.tenant, AdapterRow.name)
    return tuple(
        AdapterRecord(
            row.tenant, row.name, row.is_public, tuple(versions[row.tenant, row.name]), tuple(aliases[row.id])
        )
        for row in await connection.execute(columns)
    )
