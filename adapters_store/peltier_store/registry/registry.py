"""The registry: one front door to tenants, keys, adapters, versions and aliases."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Self

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncConnection

from peltier_store.registry import aliases, claims, deletion, keys, marks, tenants
from peltier_store.registry.audit import read_audit
from peltier_store.registry.database import database_url, refuse_older_schema, upgrade
from peltier_store.registry.dump import Line, read_lines, require_empty, require_no_collectors, write_lines
from peltier_store.registry.errors import RegistryError
from peltier_store.registry.lookup import read_digests, read_names, read_versions
from peltier_store.registry.publishing import publish, require_room
from peltier_store.registry.records import (
    Alias,
    AliasChange,
    AuditEntry,
    Key,
    Quotas,
    Reservation,
    Snapshot,
    Tenant,
    Version,
)
from peltier_store.registry.snapshot import read_snapshot
from peltier_store.registry.transactions import Transactions, WriteTransaction, read_revision

_NO_LIMITS = Quotas()
# Who reserves and collects is not of interest: neither changes what anyone owns.
_NOBODY = ""


class Registry:
    """The record of who owns what. What a method has returned from survives a crash and a power loss.

    Safe to share between tasks, and the database between processes. Whatever changes something is one transaction that
    also says in the audit log that `actor` did it. Every failure is a RegistryError of one sentence.
    """

    def __init__(self, url: URL) -> None:
        self._transactions = Transactions(url)

    @classmethod
    async def open(cls, url: str, *, migrate: bool = True) -> Self:
        """Opens sqlite+aiosqlite:///PATH or postgresql+asyncpg://…, migrated to the newest schema first. Close it.

        A SQLite database is made where there is none. Without `migrate`, which is enough to read, the database stays as
        it is, and one that is not of the newest schema is refused. Raises RegistryError for another URL, a place that
        cannot be written or reached, a database that is something else, or one that a newer Peltier has migrated.
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
            await self._transactions.read(lambda connection: connection.run_sync(refuse_older_schema))
        except RegistryError:
            await self.close()
            raise

    async def close(self) -> None:
        """Finishes what has begun and closes every connection; nothing may be asked afterwards."""
        await self._transactions.close()

    async def identity(self) -> str:
        """What tells this registry from every other one; a copy of its database, unlike an import, has the same.

        Once this was asked, another registry in the place of this one is refused with RegistryGone, as an older state
        of this one is.
        """
        return await self._transactions.identity()

    # What replicas follow.

    async def revision(self) -> int:
        """The number of the last change; it only grows."""
        return await self._transactions.read(read_revision)

    async def snapshot(self, since: int = 0) -> Snapshot:
        """Every adapter, tenant and key that changed after revision `since`, whole; after 0 that is all there are.

        Manifests, which are large and never change, come only with versions that have become live after `since`.
        Applying each in its turn gives what reading everything would give, whoever else writes meanwhile.
        """
        snapshot = await self._transactions.read(lambda connection: read_snapshot(connection, since))
        self._transactions.require_newer(snapshot.revision, since)
        self._transactions.saw(snapshot.revision)
        return snapshot

    # Adapters and their versions.

    async def versions(self, *, deleted: bool = False) -> list[Version]:
        """Every live version, by tenant, name and number; with `deleted` also those that can be undeleted."""
        return await self._transactions.read(lambda connection: read_versions(connection, deleted=deleted))

    async def require_room(self, tenant: str, name: str, *, digest: str, size_bytes: int) -> None:
        """To be asked before anything is done for an upload. Raises TenantUnknown, or QuotaReached where `publish`
        would refuse these bytes if it came now."""
        draft = Version(tenant, name, 0, digest, size_bytes, "", "", datetime.now(UTC))
        await self._transactions.read(lambda connection: require_room(connection, draft))

    async def names(self, tenant: str) -> set[str]:
        """Every name that ever had a version in the tenant, be they all deleted and purged."""
        return await self._transactions.read(lambda connection: read_names(connection, tenant))

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
        actor: str,
    ) -> tuple[Version, bool]:
        """Makes the reserved bytes, stored by now, the next version; returns the version, and whether it is new.

        `alias` names it from the same moment on. Bytes that already are a live version stay that version. Numbers start
        at 1 and are never given out twice, not even after a deletion. The reservation is used up. Raises TenantUnknown,
        QuotaReached, InvalidRecord for a bad alias, or BlobBusy where the reservation is gone: then reserve, store and
        publish again.
        """
        draft = Version(tenant, name, 0, reservation.digest, size_bytes, preset, manifest, datetime.now(UTC))
        return await self._transactions.write(actor, lambda writing: publish(writing, draft, reservation, alias))

    async def delete_version(self, tenant: str, name: str, number: int, *, actor: str) -> None:
        """Deletes one version, which can be undeleted until it is purged.

        Raises AdapterUnknown or VersionUnknown, or RegistryConflict where an alias names it.
        """
        await self._transactions.write(actor, lambda writing: deletion.delete_version(writing, tenant, name, number))

    async def delete_adapter(self, tenant: str, name: str, *, actor: str) -> int:
        """Deletes every version and alias at once; returns how many versions there were. Raises AdapterUnknown."""
        return await self._transactions.write(actor, lambda writing: deletion.delete_adapter(writing, tenant, name))

    async def undelete(self, tenant: str, name: str, number: int, *, actor: str) -> Version:
        """Makes a deleted version live again under its number; one that is live stays as it is.

        Raises VersionUnknown where it was never published or is purged, RegistryConflict where its bytes are live as
        another version, and QuotaReached where the adapter would be one too many.
        """
        return await self._transactions.write(actor, lambda writing: deletion.undelete(writing, tenant, name, number))

    async def purge(self, before: datetime, *, actor: str) -> set[str]:
        """Removes every version deleted before then for good; returns the digests that no version has any more."""
        return await self._transactions.write(actor, lambda writing: deletion.purge(writing, before))

    async def deprecate(self, tenant: str, name: str, number: int, reason: str | None, *, actor: str) -> Version:
        """Advises against a live version, or with no reason no longer. Raises AdapterUnknown or VersionUnknown."""
        return await self._transactions.write(
            actor, lambda writing: marks.deprecate(writing, tenant, name, number, reason)
        )

    async def set_public(self, tenant: str, name: str, public: bool, *, actor: str) -> None:
        """Lets other tenants use an adapter, or no longer. Raises AdapterUnknown."""
        await self._transactions.write(actor, lambda writing: marks.set_public(writing, tenant, name, public))

    # Aliases.

    async def set_alias(self, tenant: str, name: str, alias: str, split: Mapping[int, float], *, actor: str) -> Alias:
        """Makes the alias name these live versions, with the share of requests that each gets.

        Raises InvalidRecord for a bad name or shares that are not above 0 or do not sum to 1, AdapterUnknown or
        VersionUnknown.
        """
        return await self._transactions.write(
            actor, lambda writing: aliases.set_alias(writing, tenant, name, alias, split)
        )

    async def rollback_alias(self, tenant: str, name: str, alias: str, *, actor: str) -> Alias:
        """Goes back to what the alias named before, or brings it back after its deletion; twice goes two steps back.

        Raises AdapterUnknown or VersionUnknown, or RegistryConflict where there is no earlier split or one of its
        versions is no longer live.
        """
        return await self._transactions.write(
            actor, lambda writing: aliases.rollback_alias(writing, tenant, name, alias)
        )

    async def delete_alias(self, tenant: str, name: str, alias: str, *, actor: str) -> None:
        """Makes the alias name nothing; its history stays. Raises AdapterUnknown or VersionUnknown."""
        await self._transactions.write(actor, lambda writing: aliases.delete_alias(writing, tenant, name, alias))

    async def alias_history(self, tenant: str, name: str, alias: str) -> list[AliasChange]:
        """The last thousand changes of an alias, newest first. Raises AdapterUnknown or VersionUnknown."""
        return await self._transactions.read(lambda connection: aliases.read_history(connection, tenant, name, alias))

    # Tenants and keys.

    async def create_tenant(self, name: str, quotas: Quotas = _NO_LIMITS, *, actor: str) -> Tenant:
        """Makes a tenant. Raises InvalidRecord for a bad name or quota, RegistryConflict where it exists."""
        return await self._transactions.write(actor, lambda writing: tenants.create_tenant(writing, name, quotas))

    async def update_tenant(self, name: str, quotas: Quotas, *, actor: str) -> None:
        """Replaces all quotas of a tenant. Raises TenantUnknown or InvalidRecord."""
        await self._transactions.write(actor, lambda writing: tenants.update_tenant(writing, name, quotas))

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
        """Records a key by the HMAC of its text; the secret itself never comes here.

        Raises TenantUnknown, InvalidRecord for scopes that there are not, or RegistryConflict for a prefix that is
        taken: then make another key.
        """

        async def work(writing: WriteTransaction) -> Key:
            draft = Key(prefix, tenant, digest, frozenset(scopes), note, writing.at, actor, expires_at, None)
            return await keys.create_key(writing, draft)

        return await self._transactions.write(actor, work)

    async def revoke_key(self, prefix: str, *, actor: str) -> Key:
        """Takes a key's rights for good; a revoked one stays as it is. Raises KeyUnknown."""
        return await self._transactions.write(actor, lambda writing: keys.revoke_key(writing, prefix))

    # Who did what.

    async def audit(
        self, *, limit: int = 100, before_id: int | None = None, tenant: str | None = None
    ) -> list[AuditEntry]:
        """At most `limit` entries of the audit log, newest first; `before_id` is the last of the page before."""
        return await self._transactions.read(lambda connection: read_audit(connection, limit, before_id, tenant))

    # Bytes that are on their way in or out; `claims` says why this is safe.

    async def digests(self) -> set[str]:
        """The digests of every version that is not purged: the blobs that are needed."""
        return await self._transactions.read(read_digests)

    async def reserve(self, digest: str) -> Reservation:
        """To be asked before the bytes are stored: no collector deletes them until they are published, for an hour.

        Raises BlobBusy while one is deleting them; that takes moments.
        """
        return await self._transactions.write(_NOBODY, lambda writing: claims.reserve(writing, digest), durable=False)

    async def release(self, reservation: Reservation) -> None:
        """Gives up a reservation that will not be published; one that was used up is no error."""
        await self._transactions.write(_NOBODY, lambda writing: claims.release(writing, reservation), durable=False)

    async def begin_collection(self, digests: Iterable[str]) -> set[str]:
        """Those of `digests` whose blobs the caller may delete within `claims.MAX_COLLECTING`, by its own watch.

        Nothing needs them, and until `end_collection` is told of them nobody can reserve them.
        """
        return await self._transactions.write(_NOBODY, lambda writing: claims.begin_collection(writing, digests))

    async def end_collection(self, digests: Iterable[str]) -> None:
        """The blobs of these are deleted, or the caller has given up on them: they can be stored again."""
        await self._transactions.write(_NOBODY, lambda writing: claims.end_collection(writing, digests))

    # Everything at once, for backups.

    async def dump(self, take: Callable[[Line], object]) -> None:
        """Gives every row of one moment to `take`: tenants, keys, adapters, versions, aliases and the audit log."""

        async def work(connection: AsyncConnection) -> None:
            async for line in read_lines(connection):
                take(line)

        await self._transactions.read(work)

    async def require_empty(self) -> None:
        """Raises RegistryConflict where this registry holds anything but the tenant that every one begins with."""
        await self._transactions.read(require_empty)

    async def restore(self, lines: Iterable[Line], ready: Callable[[], Awaitable[None]]) -> None:
        """Takes in the rows of a dump, all or nothing. `ready` may refuse, when no blob can go any more.

        Raises RegistryConflict unless this registry is empty, BlobBusy while blobs of it are being deleted, or
        InvalidRecord for a row that does not fit.
        """

        async def work(writing: WriteTransaction) -> None:
            await require_empty(writing.connection)
            await require_no_collectors(writing)
            # It may list a large bucket.
            await writing.take_time()
            await ready()
            await write_lines(writing, lines)

        await self._transactions.write(_NOBODY, work)
