"""Transactions of the registry, with one writer at a time.

Every writing transaction first increments the revision. It holds the lock on that row until the commit. So writers are
serialised on PostgreSQL as on SQLite, and revisions become visible in their order: a reader that has seen revision 7
has seen every change with a revision of 7 or less.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from peltier_store.registry.database import (
    BAD_VALUES,
    FAILURES,
    create_engine,
    describe,
    is_full,
    is_gone,
    reason,
    refuses_a_value,
)
from peltier_store.registry.database_file import DatabaseFile
from peltier_store.registry.errors import InvalidRecord, RegistryError, RegistryFull, RegistryGone
from peltier_store.registry.tables import AdapterRow, AuditRow, RevisionRow, TenantRow

Result = TypeVar("Result")

_VERIFIED = "verified registry"
# If the database does not answer, each writer would otherwise wait for the time-outs of all writers before it.
_TURN_SECONDS = 30.0


@dataclass(frozen=True)
class WriteTransaction:
    """One writing transaction: its actor, its time, and the revision of its changes."""

    connection: AsyncConnection
    actor: str
    at: datetime
    revision: int

    async def stamp_adapter(self, adapter_id: int) -> None:
        """Makes replicas read this adapter again."""
        stamped = update(AdapterRow).where(AdapterRow.id == adapter_id).values(revision=self.revision)
        await self.connection.execute(stamped)

    async def stamp_tenant(self, tenant: str) -> None:
        """Makes replicas read this tenant again."""
        await self.connection.execute(update(TenantRow).where(TenantRow.name == tenant).values(revision=self.revision))

    async def allow_idling(self) -> None:
        """Lets this transaction be idle; PostgreSQL would otherwise end it, because it blocks other writers."""
        if self.connection.dialect.name == "postgresql":
            await self.connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")

    async def audit(self, tenant: str, action: str, subject: str, **detail: object) -> None:
        """Adds an entry to the audit log, in the same transaction as the change."""
        await self.connection.execute(
            insert(AuditRow)
            .inline()
            .values(at=self.at, tenant=tenant, actor=self.actor, action=action, subject=subject, detail=detail)
        )


class Transactions:
    """Runs work in transactions. Failures of the database are RegistryErrors of one sentence.

    After `identity`, another registry at the same place or an older state of the same one is a RegistryGone.
    """

    def __init__(self, url: URL) -> None:
        self._engines = create_engine(url), create_engine(url, durable=False)
        self._writers, self._relaxed_writers = (
            engine.execution_options(begin="BEGIN IMMEDIATE") for engine in self._engines
        )
        # All statements of a reader must see the same state, as they always do on SQLite.
        self._readers = self._engines[0]
        if self._readers.dialect.name == "postgresql":
            self._readers = self._readers.execution_options(isolation_level="REPEATABLE READ")
        # SQLite wakes waiting writers in no order, so the writers of this process wait here in theirs.
        self._turn = asyncio.Lock()
        self._unfinished: set[asyncio.Task[object]] = set()
        self._file = DatabaseFile(Path(url.database or "")) if url.get_backend_name() == "sqlite" else None
        if self._file is not None:
            for engine in self._engines:
                self._file.follow(engine.sync_engine)
        self._identity: str | None = None
        self._seen_revision = 0

    async def close(self) -> None:
        """Finishes running transactions and closes every connection."""
        await asyncio.gather(*self._unfinished, return_exceptions=True)
        for engine in self._engines:
            await engine.dispose()

    @property
    def name(self) -> str:
        """The database's name in messages."""
        return describe(self._readers.url)

    async def identity(self) -> str:
        """The unique id of this registry; from now on no other one is read or written."""
        found = await self.read(read_identity)
        if self._identity is None:
            self._identity = found
            if self._file is not None:
                self._file.pin(found)
        return found

    def saw(self, revision: int) -> None:
        """This process has seen that revision, so an older one is an older state of the registry."""
        self._seen_revision = max(self._seen_revision, revision)

    def require_newer(self, revision: int, than: int) -> None:
        """Raises RegistryGone if the database is older than this process has seen it."""
        if revision < than:
            raise RegistryGone(
                f"the registry {self.name} was replaced by an older one: it is at revision {revision} and was at {than}"
            )

    async def read(self, work: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
        """Runs `work` on one consistent state of the database."""
        return await self._finish(self._read(work))

    async def write(
        self, actor: str, work: Callable[[WriteTransaction], Awaitable[Result]], *, durable: bool = True
    ) -> Result:
        """Runs `work` as the only writer, with a new revision. An exception in it undoes all of its changes.

        The changes survive a power loss once this returns; without `durable` they may not.
        """
        return await self._finish(self._write(self._writers if durable else self._relaxed_writers, actor, work))

    async def _finish(self, work: Coroutine[Any, Any, Result]) -> Result:
        # Not cancelled with its caller: SQLite's thread would continue with the statement, and the abandoned connection
        # could keep the database locked.
        task = asyncio.create_task(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return await asyncio.shield(task)

    async def _read(self, work: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
        async with self._transaction(self._readers) as connection:
            return await work(connection)

    async def _write(
        self, engine: AsyncEngine, actor: str, work: Callable[[WriteTransaction], Awaitable[Result]]
    ) -> Result:
        async with self._own_turn(), self._transaction(engine) as connection:
            counted = update(RevisionRow).values(number=RevisionRow.number + 1)
            row = (await connection.execute(counted.returning(RevisionRow.number, RevisionRow.registry_id))).one()
            self._require_same(row.registry_id)
            self.require_newer(row.number - 1, self._seen_revision)
            result = await work(WriteTransaction(connection, actor, datetime.now(UTC), row.number))
            info = connection.info
        if self._file is not None and not self._file.is_open_in(info):
            raise RegistryGone(f"the registry {self.name} was removed or replaced during a write")
        self.saw(row.number)
        return result

    def _require_same(self, identity: str) -> None:
        if self._identity not in (None, identity):
            raise RegistryGone(
                f"the registry {self.name} was replaced by another one: it is {identity}, and it was {self._identity}"
            )

    async def _verify(self, connection: AsyncConnection) -> None:
        """Checks each connection once, because it stays with one database."""
        if self._identity is not None and _VERIFIED not in connection.info:
            self._require_same(await read_identity(connection))
            connection.info[_VERIFIED] = True

    @asynccontextmanager
    async def _own_turn(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await self._turn.acquire()
        except TimeoutError:
            raise RegistryError(
                f"the registry {self.name} failed: earlier writers have not finished within {_TURN_SECONDS:g} s"
            ) from None
        try:
            yield
        finally:
            self._turn.release()

    @asynccontextmanager
    async def _transaction(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        try:
            async with engine.begin() as connection:
                await self._verify(connection)
                yield connection
        except BAD_VALUES as error:
            raise InvalidRecord(f"a value does not fit into the registry: {error}") from error
        except ValueError as error:
            # SQLite reads missing pages as zeros, which are not valid dates, numbers or JSON.
            raise RegistryGone(f"the registry {self.name} is damaged: {reason(error)}") from error
        except FAILURES as error:
            if refuses_a_value(error):
                raise InvalidRecord(f"a value does not fit into the registry: {reason(error)}") from error
            if is_gone(error):
                raise RegistryGone(f"the registry {self.name} is missing or damaged: {reason(error)}") from error
            kind = RegistryFull if is_full(error) else RegistryError
            raise kind(f"the registry {self.name} failed: {reason(error)}") from error


async def read_revision(connection: AsyncConnection) -> int:
    """The revision of the last writing transaction that this connection sees."""
    return (await connection.execute(select(RevisionRow.number))).scalar_one()


async def read_identity(connection: AsyncConnection) -> str:
    """The unique id of this registry."""
    return (await connection.execute(select(RevisionRow.registry_id))).scalar_one()
