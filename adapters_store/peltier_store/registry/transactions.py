"""Transactions of the registry, with one writer at a time.

Every writing transaction first increments the revision. It holds the lock on that row until the commit. So writers are
serialised on PostgreSQL as on SQLite, and revisions become visible in their order: a reader that has seen revision 7
has seen every change with a revision of 7 or less.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import URL, Connection, insert, select, update

from peltier_store.registry.database import (
    BAD_VALUES,
    FAILURES,
    describe,
    is_full,
    is_gone,
    reason,
    refuses_a_value,
)
from peltier_store.registry.engines import Access, T, create_engines
from peltier_store.registry.errors import InvalidRecord, RegistryError, RegistryFull, RegistryGone
from peltier_store.registry.records import AuditEntry, AuditFilter
from peltier_store.registry.tables import AdapterRow, AuditRow, RevisionRow, TenantRow

_VERIFIED = "verified registry"
# The actor of a change that is not in the audit log.
NO_ACTOR = ""
# If the database does not answer, each writer would otherwise wait for the time-outs of all writers before it.
_TURN_SECONDS = 30.0
# Statements of every upload are made once: making one takes longer than SQLite takes to run it.
_NEXT_REVISION = (
    update(RevisionRow).values(number=RevisionRow.number + 1).returning(RevisionRow.number, RevisionRow.registry_id)
)
_AUDIT = insert(AuditRow).inline()
_REVISION, _IDENTITY = select(RevisionRow.number), select(RevisionRow.registry_id)


@dataclass(frozen=True)
class WriteTransaction:
    """One writing transaction: its actor, its time, and the revision of its changes."""

    connection: Connection
    actor: str
    at: datetime
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
            result = work(WriteTransaction(connection, actor, datetime.now(UTC), row.number))
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


def read_identity(connection: Connection) -> str:
    """The unique id of this registry."""
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
