"""Who owns which adapter versions: the registry."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self, TypeVar, TypeVarTuple

from sqlalchemy import ColumnElement, Row, ScalarSelect, Select, and_, delete, insert, select
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from peltier_adapters.database import RegistryError, create_engine, database_url, reason, upgrade
from peltier_adapters.tables import AdapterRow, VersionRow

__all__ = ["Registry", "RegistryError", "Version"]

Result = TypeVar("Result")
Columns = TypeVarTuple("Columns")


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
        self._unfinished: set[asyncio.Task[object]] = set()

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
        """Finishes what has begun and closes every connection; nothing may be asked afterwards."""
        await asyncio.gather(*self._unfinished, return_exceptions=True)
        await self._engine.dispose()

    async def publish(  # noqa: PLR0913 - what a version is
        self, tenant: str, name: str, *, digest: str, size_bytes: int, preset: str, manifest: str
    ) -> tuple[Version, bool]:
        """Makes these bytes the next version of the adapter; returns the version, and whether it is new.

        Bytes that already are a live version stay that version. Numbers start at 1 and are never given out twice, not
        even after a deletion.
        """
        draft = Version(tenant, name, 0, digest, size_bytes, preset, manifest, datetime.now(UTC))
        return await self._finish(self._publish(draft))

    async def versions(self) -> list[Version]:
        """Every live version, by tenant, name and number."""
        ordered = _versions().order_by(AdapterRow.tenant, AdapterRow.name, VersionRow.number)
        return [Version(*row) for row in await self._finish(self._read(ordered))]

    async def digests(self) -> set[str]:
        """The digests of every live version: the blobs that are still needed."""
        return {digest for (digest,) in await self._finish(self._read(select(VersionRow.digest)))}

    async def delete_adapter(self, tenant: str, name: str) -> int:
        """Deletes every version of the adapter at once; returns how many there were."""
        return await self._finish(self._delete(VersionRow.adapter_id == _adapter_id(tenant, name)))

    async def delete_version(self, tenant: str, name: str, number: int) -> bool:
        """Deletes one version; returns whether there was one."""
        return (
            await self._finish(
                self._delete(and_(VersionRow.adapter_id == _adapter_id(tenant, name), VersionRow.number == number))
            )
            == 1
        )

    async def _finish(self, work: Coroutine[Any, Any, Result]) -> Result:
        # A caller may be cancelled, a transaction may not: SQLite's thread would go on with the statement, and the
        # abandoned connection could keep the database locked.
        task = asyncio.create_task(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return await asyncio.shield(task)

    async def _publish(self, draft: Version) -> tuple[Version, bool]:
        async with self._writing() as connection:
            existing = await _find(connection, draft)
            if existing is not None:
                return existing, False
            adapter_id, number = await _next_number(connection, draft)
            row = insert(VersionRow).values(
                adapter_id=adapter_id,
                number=number,
                digest=draft.digest,
                size_bytes=draft.size_bytes,
                preset=draft.preset,
                manifest=draft.manifest,
                created_at=draft.created_at,
            )
            await connection.execute(row)
        return replace(draft, number=number), True

    async def _delete(self, condition: ColumnElement[bool]) -> int:
        async with self._writing() as connection:
            result = await connection.execute(delete(VersionRow).where(condition))
        return result.rowcount

    async def _read(self, query: Select[*Columns]) -> Sequence[Row[*Columns]]:
        async with self._transaction(self._engine) as connection:
            return (await connection.execute(query)).all()

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


async def _find(connection: AsyncConnection, draft: Version) -> Version | None:
    same = and_(AdapterRow.tenant == draft.tenant, AdapterRow.name == draft.name, VersionRow.digest == draft.digest)
    row = (await connection.execute(_versions().where(same))).one_or_none()
    return None if row is None else Version(*row)


async def _next_number(connection: AsyncConnection, draft: Version) -> tuple[int, int]:
    counted = (
        upsert(AdapterRow)
        .values(tenant=draft.tenant, name=draft.name, last_number=1)
        .on_conflict_do_update(
            index_elements=[AdapterRow.tenant, AdapterRow.name],
            set_={"last_number": AdapterRow.last_number + 1},
        )
        .returning(AdapterRow.id, AdapterRow.last_number)
    )
    adapter_id, number = (await connection.execute(counted)).one()
    return adapter_id, number
