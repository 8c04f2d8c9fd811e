"""Transactions of the registry, with one writer at a time.

Every writing transaction first increments the revision. It holds the lock on that row until the commit. So writers are
serialised on PostgreSQL as on SQLite, and revisions become visible in their order: a reader that has seen revision 7
has seen every change with a revision of 7 or less.

Claims of a queue (`Transactions.claim`) have no revision and do not wait for that row. On PostgreSQL they lock the row
of the queue that they change, by SKIP LOCKED, and writers that change such a row lock it when they read it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import URL, Connection, Engine, func, insert, select, update
from sqlalchemy.util import await_

from peltier_store.registry.database import (
    BAD_VALUES,
    FAILURES,
    create_postgresql_engine,
    create_sqlite_engine,
    describe,
    is_full,
    is_gone,
    is_sqlite,
    reason,
    refuses_a_value,
)
from peltier_store.registry.database_file import DatabaseFile
from peltier_store.registry.errors import InvalidRecord, RegistryError, RegistryFull, RegistryGone
from peltier_store.registry.records import AuditEntry, AuditFilter
from peltier_store.registry.tables import AdapterRow, AuditRow, RevisionRow, TenantRow, UtcDateTime

T = TypeVar("T")

# One thread writes, and the others read. Fewer than the connections that an engine may open.
_NUM_THREADS = 8
_VERIFIED = "verified registry"
# The actor of a change that is not in the audit log.
NO_ACTOR = ""
# If the database does not answer, each writer would otherwise wait for the time-outs of all writers before it.
_TURN_SECONDS = 30.0
# The database's clock decides between times of different machines, whose own clocks may be hours apart.
_CLOCK = func.clock_timestamp(type_=UtcDateTime()).label("at")
# Statements of every upload are made once: making one takes longer than SQLite takes to run it.
_NEXT_REVISION = (
    update(RevisionRow)
    .values(number=RevisionRow.number + 1)
    .returning(RevisionRow.number, RevisionRow.registry_id, _CLOCK)
)
_AUDIT = insert(AuditRow).inline()
_REVISION, _IDENTITY, _TIME = select(RevisionRow.number), select(RevisionRow.registry_id), select(_CLOCK)


class Access(Enum):
    """What a transaction may do. The commit of a relaxed write may be undone by a power loss."""

    READ = "read"
    WRITE = "write"
    RELAXED_WRITE = "relaxed write"


class Engines(Protocol):
    """The connections to one database."""

    async def run(self, access: Access, work: Callable[[Connection], T]) -> T:
        """Calls `work` in a transaction; an exception in it undoes its changes."""

    def wait(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the event loop while the work of a transaction waits for its result."""

    def pin(self, registry_id: str) -> None:
        """Declares that the database holds this registry; from then on no other one is used."""

    async def close(self) -> None:
        """Closes every connection."""


def create_engines(url: URL) -> Engines:
    return SqliteEngines(url) if is_sqlite(url) else PostgresqlEngines(url)


class SqliteEngines:
    """A whole transaction runs in one thread. To hand every statement to a thread takes five times as long."""

    def __init__(self, url: URL) -> None:
        durable, relaxed = create_sqlite_engine(url), create_sqlite_engine(url, durable=False)
        self._name = describe(url)
        self._file = DatabaseFile(Path(url.database or ""))
        for engine in (durable, relaxed):
            self._file.follow(engine)
        self._engines: dict[Access, Engine] = {
            Access.READ: durable,
            Access.WRITE: durable.execution_options(begin="BEGIN IMMEDIATE"),
            Access.RELAXED_WRITE: relaxed.execution_options(begin="BEGIN IMMEDIATE"),
        }
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="registry")

    async def run(self, access: Access, work: Callable[[Connection], T]) -> T:
        """See `Engines`. Raises RegistryGone if the file was removed or replaced before the commit."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, access, work)

    def _run(self, access: Access, work: Callable[[Connection], T]) -> T:
        with self._engines[access].begin() as connection:
            result = work(connection)
            info = connection.info
        if access is not Access.READ and not self._file.is_open_in(info):
            raise RegistryGone(f"the registry {self._name} was removed or replaced during a write")
        return result

    def wait(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    def pin(self, registry_id: str) -> None:
        self._file.pin(registry_id)

    async def close(self) -> None:
        for engine in self._engines.values():
            engine.dispose()
        self._threads.shutdown(wait=False)


class PostgresqlEngines:
    """The driver is asynchronous, so the work runs on the event loop, which does other things while it waits."""

    def __init__(self, url: URL) -> None:
        durable, relaxed = create_postgresql_engine(url), create_postgresql_engine(url, durable=False)
        self._engines = {
            # All statements of a reader must see the same state, as they always do on SQLite.
            Access.READ: durable.execution_options(isolation_level="REPEATABLE READ"),
            Access.WRITE: durable,
            Access.RELAXED_WRITE: relaxed,
        }

    async def run(self, access: Access, work: Callable[[Connection], T]) -> T:
        async with self._engines[access].begin() as connection:
            return await connection.run_sync(work)

    def wait(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
        return await_(work)

    def pin(self, registry_id: str) -> None:
        """See `Engines`. The identity that `Transactions` reads is enough."""

    async def close(self) -> None:
        for engine in (self._engines[Access.WRITE], self._engines[Access.RELAXED_WRITE]):
            await engine.dispose()


@dataclass(frozen=True)
class QueueTransaction:
    """A transaction that changes rows of a queue, which have no revisions: its connection, and the database's time."""

    connection: Connection
    at: datetime


@dataclass(frozen=True)
class WriteTransaction(QueueTransaction):
    """One writing transaction: its actor, its time, and the revision of its changes."""

    actor: str
    revision: int

    def stamp_adapter(self, adapter_id: int) -> None:
        """Makes replicas read this adapter again."""
        stamped = update(AdapterRow).where(AdapterRow.id == adapter_id).values(revision=self.revision)
        self.connection.execute(stamped)

    def stamp_tenant(self, tenant: str) -> None:
        """Makes replicas read this tenant again."""
        self.connection.execute(update(TenantRow).where(TenantRow.name == tenant).values(revision=self.revision))

    def allow_idling(self) -> None:
        """Lets this transaction be idle; PostgreSQL would otherwise end it, because it blocks other writers."""
        if self.connection.dialect.name == "postgresql":
            self.connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")

    def audit(self, tenant: str, action: str, subject: str, **detail: object) -> None:
        """Adds an entry to the audit log, in the same transaction as the change."""
        entry = {"at": self.at, "tenant": tenant, "actor": self.actor, "action": action, "subject": subject}
        self.connection.execute(_AUDIT, {**entry, "detail": detail})


class Transactions:
    """Runs work in transactions. Failures of the database are RegistryErrors of one sentence.

    After `identity`, another registry at the same place or an older state of the same one is a RegistryGone.
    """

    def __init__(self, url: URL) -> None:
        self._url = url
        self._engines = create_engines(url)
        # SQLite wakes waiting writers in any order. Here the writers of this process wait in the order of their calls.
        self._turn = asyncio.Lock()
        self._unfinished: set[asyncio.Task[object]] = set()
        self._identity: str | None = None
        self._seen_revision = 0

    async def close(self) -> None:
        """Finishes running transactions and closes every connection."""
        await asyncio.gather(*self._unfinished, return_exceptions=True)
        await self._engines.close()

    @property
    def name(self) -> str:
        """The database's name in messages."""
        return describe(self._url)

    async def identity(self) -> str:
        """The unique id of this registry; from now on no other one is read or written."""
        found = await self.read(read_identity)
        if self._identity is None:
            self._identity = found
            self._engines.pin(found)
        return found

    def saw(self, revision: int) -> None:
        """Notes that this process has seen that revision. A lower revision is then an older state of the registry."""
        self._seen_revision = max(self._seen_revision, revision)

    def require_newer(self, revision: int, than: int) -> None:
        """Raises RegistryGone if the database is older than this process has seen it."""
        if revision < than:
            raise RegistryGone(
                f"the registry {self.name} was replaced by an older one: it is at revision {revision} and was at {than}"
            )

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` on one consistent state of the database."""
        return await self._finish(self._run(Access.READ, work))

    async def write(self, actor: str, work: Callable[[WriteTransaction], T], *, durable: bool = True) -> T:
        """Runs `work` as the only writer, with a new revision. An exception in it undoes all of its changes.

        The changes survive a power loss once this returns; without `durable` they may not.
        """
        access = Access.WRITE if durable else Access.RELAXED_WRITE
        return await self._finish(self._write(access, actor, work))

    async def claim(self, work: Callable[[QueueTransaction], T]) -> T:
        """Runs `work`, which changes only rows of a queue that it has locked, beside the writers of other processes.

        SQLite has one writer at a time here too.
        """

        def claim(connection: Connection) -> T:
            return work(QueueTransaction(connection, read_clock(connection)))

        async def run() -> T:
            async with self._own_turn():
                return await self._run(Access.WRITE, claim)

        return await self._finish(run())

    def waiting(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Callable[[], T]:
        """A function that runs `work` on the running event loop; only work inside of a transaction may call it."""
        loop = asyncio.get_running_loop()
        return lambda: self._engines.wait(loop, work())

    async def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        # Not cancelled with its caller: SQLite's thread would continue with the statement, and the abandoned connection
        # could keep the database locked.
        task = asyncio.create_task(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return await asyncio.shield(task)

    async def _write(self, access: Access, actor: str, work: Callable[[WriteTransaction], T]) -> T:
        def write(connection: Connection) -> tuple[int, T]:
            row = connection.execute(_NEXT_REVISION).one()
            self._require_same(row.registry_id)
            self.require_newer(row.number - 1, self._seen_revision)
            result = work(WriteTransaction(connection, row.at, actor, row.number))
            return row.number, result

        async with self._own_turn():
            revision, result = await self._run(access, write)
        self.saw(revision)
        return result

    def _require_same(self, identity: str) -> None:
        if self._identity not in (None, identity):
            raise RegistryGone(
                f"the registry {self.name} was replaced by another one: it is {identity}, and it was {self._identity}"
            )

    def _verify(self, connection: Connection) -> None:
        """Checks each connection once, because it stays with one database."""
        if self._identity is not None and _VERIFIED not in connection.info:
            self._require_same(read_identity(connection))
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

    async def _run(self, access: Access, work: Callable[[Connection], T]) -> T:
        def verified(connection: Connection) -> T:
            self._verify(connection)
            return work(connection)

        with self._as_registry_errors():
            return await self._engines.run(access, verified)

    @contextmanager
    def _as_registry_errors(self) -> Iterator[None]:
        try:
            yield
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


def read_revision(connection: Connection) -> int:
    """The revision of the last writing transaction that this connection sees."""
    return connection.execute(_REVISION).scalar_one()


def read_clock(connection: Connection) -> datetime:
    """The database's time."""
    return connection.execute(_TIME).scalar_one()


def read_identity(connection: Connection) -> str:
    return connection.execute(_IDENTITY).scalar_one()


def read_audit(connection: Connection, limit: int, before_id: int | None, wanted: AuditFilter) -> list[AuditEntry]:
    """At most `limit` of the wanted entries before that one, newest first."""
    entries = select(AuditRow.__table__).order_by(AuditRow.id.desc()).limit(limit)
    if before_id is not None:
        entries = entries.where(AuditRow.id < before_id)
    for column, value in ((AuditRow.tenant, wanted.tenant), (AuditRow.actor, wanted.actor)):
        if value is not None:
            entries = entries.where(column == value)
    if wanted.action is not None:
        entries = entries.where(AuditRow.action == wanted.action)
    if wanted.since is not None:
        entries = entries.where(AuditRow.at >= wanted.since)
    if wanted.until is not None:
        entries = entries.where(AuditRow.at < wanted.until)
    return [AuditEntry(**row._mapping) for row in connection.execute(entries)]
