"""Reads the changes since a revision, with which a replica updates its memory."""

from collections import defaultdict

from sqlalchemy import BigInteger, Connection, bindparam, case, select

from peltier_store.registry.aliases import alias_of, select_aliases
from peltier_store.registry.keys import key_of, select_keys
from peltier_store.registry.lookup import LIVE, select_versions, version_of
from peltier_store.registry.records import AdapterRecord, AliasRecord, RegistrySnapshot, VersionRecord
from peltier_store.registry.tables import AdapterRow, AliasRow, KeyRow, TenantRow, VersionRow
from peltier_store.registry.tenants import select_tenants, tenant_of
from peltier_store.registry.transactions import read_revision

_SINCE = bindparam("since", type_=BigInteger)
_CHANGED = AdapterRow.revision > _SINCE
# A replica keeps the manifests it has read, and does not need those of deleted versions, which may be thousands.
_UNREAD = case((LIVE & (VersionRow.revision > _SINCE), VersionRow.manifest), else_="")
_VERSIONS = select_versions(_UNREAD).where(_CHANGED).order_by(VersionRow.adapter_id, VersionRow.number)
_ALIASES = (
    select_aliases().join(AdapterRow, AdapterRow.id == AliasRow.adapter_id).where(_CHANGED).order_by(AliasRow.alias)
)
_ADAPTERS = select(AdapterRow.__table__).where(_CHANGED).order_by(AdapterRow.tenant, AdapterRow.name)
_TENANTS = select_tenants().where(TenantRow.revision > _SINCE)
_KEYS = select_keys().where(KeyRow.revision > _SINCE)


def read_snapshot(connection: Connection, since: int) -> RegistrySnapshot:
    """The current revision, and every adapter, tenant and key that changed after `since`."""
    revision = read_revision(connection)
    if revision == since:
        return RegistrySnapshot(revision, (), ())
    changed = {"since": since}
    return RegistrySnapshot(
        revision,
        _adapters(connection, changed),
        tuple(tenant_of(row) for row in connection.execute(_TENANTS, changed)),
        tuple(key_of(row) for row in connection.execute(_KEYS, changed)),
    )


def _adapters(connection: Connection, changed: dict[str, int]) -> tuple[AdapterRecord, ...]:
    versions: dict[tuple[str, str], list[VersionRecord]] = defaultdict(list)
    for row in connection.execute(_VERSIONS, changed):
        versions[row.tenant, row.name].append(version_of(row))
    aliases: dict[int, list[AliasRecord]] = defaultdict(list)
    for row in connection.execute(_ALIASES, changed):
        aliases[row.adapter_id].append(alias_of(row))
    return tuple(
        AdapterRecord(
            row.tenant, row.name, row.is_public, tuple(versions[row.tenant, row.name]), tuple(aliases[row.id])
        )
        for row in connection.execute(_ADAPTERS, changed)
    )
