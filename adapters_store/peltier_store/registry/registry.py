"""The registry: operations on tenants, keys, adapters, versions and aliases."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import ClassVar, ParamSpec, Self, TypeVar

from peltier_client.protocol.adapters import AdapterPin
from peltier_client.protocol.administration import TenantInfo, TenantQuotas
from sqlalchemy import URL, BigInteger, Connection, bindparam, case, select

from peltier_store.registry import aliases, claims, tenants, versions
from peltier_store.registry.aliases import alias_of, select_aliases
from peltier_store.registry.contents import Contents
from peltier_store.registry.database import database_url
from peltier_store.registry.errors import RegistryError
from peltier_store.registry.lookup import (
    LIVE,
    find_version,
    read_digests,
    read_names,
    read_versions,
    select_versions,
    version_of,
)
from peltier_store.registry.operations import Operations, reads, writes
from peltier_store.registry.records import (
    AdapterRecord,
    AliasRecord,
    AuditFilter,
    Key,
    Position,
    RegistrySnapshot,
    Reservation,
    VersionRecord,
)
from peltier_store.registry.schema import read_schema, refuse_older_schema, upgrade
from peltier_store.registry.tables import AdapterRow, AliasRow, KeyRow, TenantRow, VersionRow
from peltier_store.registry.tenants import key_of, select_keys, select_tenants, tenant_of
from peltier_store.registry.transactions import Transactions, WriteTransaction, read_audit
from peltier_store.registry.versions import pin_of

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
_NO_LIMITS = TenantQuotas()
_ALL_ENTRIES = AuditFilter()
P = ParamSpec("P")
T = TypeVar("T")
# What else is done in the transaction that publishes a version.
OnPublish = Callable[[WriteTransaction, VersionRecord], None]


def read_changes(connection: Connection, position: Position, since: Position | None) -> RegistrySnapshot:
    """Every adapter, tenant and key that changed after `since`, as of `position`."""
    if position == since:
        return RegistrySnapshot(position, (), ())
    changed = {"since": 0 if since is None else since.revision}
    return RegistrySnapshot(
        position,
        _adapters(connection, changed),
        tuple(tenant_of(row) for row in connection.execute(_TENANTS, changed)),
        tuple(key_of(row) for row in connection.execute(_KEYS, changed)),
        is_whole=since is None,
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
            row.tenant,
            row.name,
            row.is_public,
            tuple(versions[row.tenant, row.name]),
            tuple(aliases[row.id]),
            pin_of(row),
        )
        for row in connection.execute(_ADAPTERS, changed)
    )


class CoreRegistry(Operations):
    """Tenants and what they own. Once a method returns, its change survives a crash and a power loss.

    Tasks may share a registry, and processes may share its database. Each change is one transaction, which also adds an
    entry with its `actor` to the audit log. Every failure is a RegistryError of one sentence. `contents` are its rows,
    for backups.
    """

    schema = reads(read_schema)
    find = reads(find_version)
    report = reads(versions.find_report)
    require_room = reads(versions.require_room)
    versions = reads(read_versions)
    names = reads(read_names)
    usage = reads(tenants.read_usage)
    alias_history = reads(aliases.read_history)
    audit = reads(read_audit)
    digests = reads(read_digests)
    reserve = writes(claims.reserve)
    release = writes(claims.release)
    begin_collection = writes(claims.begin_collection)
    end_collection = writes(claims.end_collection)
    # What a purge removes too, in tables of extensions.
    forgetting: ClassVar[tuple[Callable[[WriteTransaction], None], ...]] = ()

    def __init__(self, url: URL) -> None:
        super().__init__(Transactions(url))
        self.contents = Contents(self._transactions)

    @classmethod
    async def open(cls, url: str, *, migrate: bool = True) -> Self:
        """Opens sqlite+aiosqlite:///PATH or postgresql+asyncpg://… and migrates it to the newest schema.

        Creates a missing SQLite database. Without `migrate`, for readers, the database stays unchanged, and must have
        the newest schema. Raises RegistryError for another URL, a database that cannot be written or reached, one that
        is not a registry, or one that a newer version of Peltier has migrated. The caller must call `close`.
        """
        database = database_url(url)
        registry = cls(database)
        if migrate:
            await asyncio.to_thread(upgrade, database)
        else:
            await registry._require_newest_schema()
        return registry

    async def _require_newest_schema(self) -> None:
        try:
            await self._transactions.read(refuse_older_schema)
        except RegistryError:
            await self.close()
            raise

    async def close(self) -> None:
        """Finishes running transactions and closes every connection; the registry cannot be used afterwards."""
        await self._transactions.close()

    async def identity(self) -> str:
        """The unique id of this registry. A copy of the database has the same one, an imported backup a new one.

        After this call, changes and snapshots raise RegistryGone if the database was replaced by another registry.
        """
        return await self._transactions.identity()

    async def position(self) -> Position:
        """The last change."""
        return await self._transactions.position()

    def now(self) -> datetime:
        """The database's time, which is that of all replicas, as far as it is known since the last snapshot."""
        return self._transactions.now()

    async def snapshot(self, since: Position | None = None) -> RegistrySnapshot:
        """Every adapter, tenant and key that changed after `since`, complete; with None, all of them.

        Only versions that became live after `since` have manifests, because these are large and never change. Applying
        snapshots one after another gives the same as reading everything, even while others write. Raises
        RegistryRewound if the database lacks the change `since`, because it was restored or has lost changes in a
        crash. From then on changes raise it too, until a snapshot of everything has been read.
        """
        return await self._transactions.follow(
            since, lambda connection, position: read_changes(connection, position, since)
        )

    async def publish(  # noqa: PLR0913 - what a version is
        self,
        tenant: str,
        name: str,
        reservation: Reservation,
        *,
        size_bytes: int,
        preset: str,
        manifest: str,
        alias: str | None = None,
        report: str | None = None,
        then: OnPublish | None = None,
        actor: str,
    ) -> tuple[VersionRecord, bool]:
        """Makes the stored, reserved bytes the next version; returns the version, and whether it is new.

        The same transaction points `alias` to it, stores its `report`, in place of an earlier one, and calls `then`. If
        a live version has the same bytes, that version is returned. Numbers start at 1 and are never reused. The
        reservation ends. Raises TenantUnknown, QuotaReached, InvalidRecord for an invalid alias, what `then` raises, or
        BlobBusy if the reservation is gone: then reserve, store and publish again.
        """
        draft = VersionRecord(tenant, name, 0, reservation.digest, size_bytes, preset, manifest, datetime.now(UTC))

        def work(writing: WriteTransaction) -> tuple[VersionRecord, bool]:
            version, is_new = versions.publish(writing, draft, reservation, report)
            if alias is not None:
                aliases.set_alias(writing, tenant, name, alias, {version.number: 1.0})
            if then is not None:
                then(writing, version)
            return version, is_new

        return await self._transactions.write(actor, work)

    async def delete_version(self, tenant: str, name: str, number: int, *, actor: str) -> None:
        """Deletes one version, which can be undeleted until it is purged.

        Raises AdapterUnknown or VersionUnknown, or RegistryConflict if an alias names it.
        """
        await self._write(actor, versions.delete_version, tenant, name, number)

    async def delete_adapter(self, tenant: str, name: str, *, actor: str) -> int:
        """Deletes every version and alias at once; returns how many versions there were. Raises AdapterUnknown."""
        return await self._write(actor, versions.delete_adapter, tenant, name)

    async def undelete(self, tenant: str, name: str, number: int, *, actor: str) -> VersionRecord:
        """Makes a deleted version live again under its number; one that is live stays as it is.

        Raises VersionUnknown if it was never published or is purged, RegistryConflict if another live version has its
        bytes, and QuotaReached if the tenant would have too many adapters.
        """
        return await self._write(actor, versions.undelete, tenant, name, number)

    async def purge(self, grace: timedelta, *, actor: str) -> set[str]:
        """Removes every version deleted longer ago, and what extensions forget; returns the digests of the versions
        that nothing else needs."""

        def work(writing: WriteTransaction) -> set[str]:
            for forget in self.forgetting:
                forget(writing)
            return versions.purge(writing, grace)

        return await self._transactions.write(actor, work)

    async def deprecate(self, tenant: str, name: str, number: int, reason: str | None, *, actor: str) -> VersionRecord:
        """Marks a live version as deprecated; None removes the mark. Raises AdapterUnknown or VersionUnknown."""
        return await self._write(actor, versions.deprecate, tenant, name, number, reason)

    async def set_public(self, tenant: str, name: str, public: bool, *, actor: str) -> None:
        """Allows or forbids other tenants to use an adapter. Raises AdapterUnknown."""
        await self._write(actor, versions.set_public, tenant, name, public)

    async def pin(self, tenant: str, name: str, *, actor: str) -> AdapterPin:
        """Pins an adapter to the device of every replica, until `unpin`, or until all of its versions are deleted.
        Raises AdapterUnknown."""
        return await self._write(actor, versions.set_pin, tenant, name)

    async def unpin(self, tenant: str, name: str, *, actor: str) -> None:
        """Releases the pin of an adapter, if it has one. Raises AdapterUnknown."""
        await self._write(actor, versions.release_pin, tenant, name)

    async def set_alias(
        self, tenant: str, name: str, alias: str, split: Mapping[int, float], *, actor: str
    ) -> AliasRecord:
        """Points the alias to these live versions, each with its share of requests.

        Raises InvalidRecord for an invalid name, or for shares that are not above 0 or do not sum to 1, AdapterUnknown
        or VersionUnknown.
        """
        return await self._write(actor, aliases.set_alias, tenant, name, alias, split)

    async def rollback_alias(self, tenant: str, name: str, alias: str, *, actor: str) -> AliasRecord:
        """Restores the alias's previous split, also after its deletion; two rollbacks go two steps back.

        Raises AdapterUnknown or VersionUnknown, or RegistryConflict if there is no earlier split or one of its versions
        is not live.
        """
        return await self._write(actor, aliases.rollback_alias, tenant, name, alias)

    async def delete_alias(self, tenant: str, name: str, alias: str, *, actor: str) -> None:
        """Deletes the alias; its history stays. Raises AdapterUnknown or VersionUnknown."""
        await self._write(actor, aliases.delete_alias, tenant, name, alias)

    async def create_tenant(self, name: str, quotas: TenantQuotas = _NO_LIMITS, *, actor: str) -> TenantInfo:
        """Creates a tenant. Raises InvalidRecord for an invalid name, RegistryConflict if it exists."""
        return await self._write(actor, tenants.create_tenant, name, quotas)

    async def update_tenant(self, name: str, quotas: TenantQuotas, *, actor: str) -> None:
        """Replaces all quotas of a tenant. Raises TenantUnknown."""
        await self._write(actor, tenants.update_tenant, name, quotas)

    async def create_key(  # noqa: PLR0913 - what a key is
        self,
        tenant: str,
        *,
        prefix: str,
        digest: str,
        scopes: Collection[str],
        note: str = "",
        expires_at: datetime | None = None,
        actor: str,
    ) -> Key:
        """Records a key by the HMAC of its text; the registry never sees the key itself.

        Raises TenantUnknown, InvalidRecord for unknown scopes, or RegistryConflict for a prefix that exists: then
        generate another key.
        """

        def work(writing: WriteTransaction) -> Key:
            draft = Key(prefix, tenant, digest, frozenset(scopes), note, writing.at, actor, expires_at, None)
            return tenants.create_key(writing, draft)

        return await self._transactions.write(actor, work)

    async def revoke_key(self, prefix: str, *, actor: str) -> Key:
        """Revokes a key permanently; a revoked key stays unchanged. Raises KeyUnknown."""
        return await self._write(actor, tenants.revoke_key, prefix)
