"""Who owns which adapter versions: the registry."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from sqlalchemy import ScalarSelect, Select, delete, insert, select
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from peltier_adapters.database import RegistryError, create_engine, database_url, reason, upgrade
from peltier_adapters.tables import AdapterRow, VersionRow

__all__ = ["Registry", "RegistryError", "Version"]


@dataclass(frozen=True)
class Version:
    """One published version of a tenant's adapter; it never changes."""

    tenant: str
    name: str
    number: int
    digest: str
    size_bytes: int
    preset: str
    manifest: str
    created_at: datetime


class Registry:
    """The record of every live version. What a method has returned from survives a crash and a power loss.

    Safe to share between tasks, and the database between processes. Every failure is a RegistryError of one sentence.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        # SQLite has one writer and wakes those that wait in no order; tasks of this process queue up fairly instead.
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, url: str) -> Self:
        """Opens sqlite+aiosqlite:///PATH, made or migrated to the newest schema first. Close it after use.

        Raises RegistryError for another URL, a place that cannot be written, a file that is something else, or a
        database that a newer Peltier has migrated.
        """
        database = database_url(url)
        await asyncio.to_thread(upgrade, database)
        return cls(create_engine(database))

    async def close(self) -> None:
        """Closes every connection; nothing may be asked afterwards."""
        await self._engine.dispose()

    async def publish(  # noqa: PLR0913 - what a version is
        self, tenant: str, name: str, *, digest: str, size_bytes: int, preset: str, manifest: str
    ) -> tuple[Version, bool]:
        """Makes these bytes the next version of the adapter; returns the version, and whether it is new.

        Bytes that already are a live version stay that version. Numbers start at 1 and are never given out twice, not
        even after a deletion.
        """
        async with self._writing() as connection:
            existing = _versions().where(
                AdapterRow.tenant == tenant, AdapterRow.name == name, VersionRow.digest == digest
            )
            row = (await connection.execute(existing)).one_or_none()
            if row is not None:
                return Version(*row), False
            adapter_id, number = await _next_number(connection, tenant, name)
            version = Version(tenant, name, number, digest, size_bytes, preset, manifest, datetime.now(UTC))
            await connection.execute(
                insert(VersionRow).values(
                    adapter_id=adapter_id,
                    number=number,
                    digest=digest,
                    size_bytes=size_bytes,
                    preset=preset,
                    manifest=manifest,
                    created_at=version.created_at,
                )
            )
        return version, True

    async def versions(self) -> list[Version]:
        """Every live version, by tenant, name and number."""
        async with self._transaction(self._engine) as connection:
            rows = await connection.execute(_versions().order_by(AdapterRow.tenant, AdapterRow.name, VersionRow.number))
            return [Version(*row) for row in rows]

    async def digests(self) -> set[str]:
        """The digests of every live version: the blobs that are still needed."""
        async with self._transaction(self._engine) as connection:
            return set(await connection.scalars(select(VersionRow.digest)))

    async def delete_adapter(self, tenant: str, name: str) -> int:
        """Deletes every version of the adapter at once; returns how many there were."""
        async with self._writing() as connection:
            result = await connection.execute(
                delete(VersionRow).where(VersionRow.adapter_id == _adapter_id(tenant, name))
            )
            return result.rowcount

    async def delete_version(self, tenant: str, name: str, number: int) -> bool:
        """Deletes one version; returns whether there was one."""
        async with self._writing() as connection:
            result = await connection.execute(
                delete(VersionRow).where(
                    VersionRow.adapter_id == _adapter_id(tenant, name), VersionRow.number == number
                )
            )
            return result.rowcount == 1

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[AsyncConnection]:
        immediate = self._engine.execution_options(begin="BEGIN IMMEDIATE")
        async with self._turn, self._transaction(immediate) as connection:
            yield connection

    @asynccontextmanager
    async def _transaction(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        try:
            async with engine.begin() as connection:
                yield connection
        except DBAPIError as error:
            raise RegistryError(f"the registry {engine.url.database!r} failed: {reason(error)}") from error


def _versions() -> Select[str, str, int, str, int, str, str, datetime]:
    # The columns are the fields of Version, in their order.
    return select(
        AdapterRow.tenant,
        AdapterRow.name,
        VersionRow.number,
        VersionRow.digest,
        VersionRow.size_bytes,
        VersionRow.preset,
        VersionRow.manifest,
        VersionRow.created_at,
    ).join(AdapterRow, AdapterRow.id == VersionRow.adapter_id)


def _adapter_id(tenant: str, name: str) -> ScalarSelect[int]:
    return select(AdapterRow.id).where(AdapterRow.tenant == tenant, AdapterRow.name == name).scalar_subquery()


async def _next_number(connection: AsyncConnection, tenant: str, name: str) -> tuple[int, int]:
    counted = (
        upsert(AdapterRow)
        .values(tenant=tenant, name=name, last_number=1)
        .on_conflict_do_update(
            index_elements=[AdapterRow.tenant, AdapterRow.name],
            set_={"last_number": AdapterRow.last_number + 1},
        )
        .returning(AdapterRow.id, AdapterRow.last_number)
    )
    adapter_id, number = (await connection.execute(counted)).one()
    return adapter_id, number
