"""Transactions of the registry, with one writer at a time.

Every writing transaction first increments the revision. It holds the lock on that row until the commit. So writers are
serialised on PostgreSQL as on SQLite, and revisions become visible in their order: a reader that has seen revision 7
has seen every change with a revision of 7 or less. Each commit is durable before others can read it.

Each change also has a random id. A restored copy, or a standby that lacked the last changes, may reach a revision that
was read before, but by a change with another id. So one comparison, of the id of the revision that was read last, tells
a reader whether the database still has all that it has read, and a writer whether its decision rests on that.

Claims of a queue (`Transactions.claim`) have no revision and do not wait for that row. On PostgreSQL they lock the row
of the queue that they change, by SKIP LOCKED, and writers that change such a row lock it when they read it.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from peltier_client.protocol.administration import AuditRecord
from sqlalchemy import URL, BigInteger, Connection, Row, bindparam, delete, func, insert, select, update

from peltier_store.registry.database import (
    BAD_VALUES,
    FAILURES,
    Access,
    create_engines,
    describe,
    is_full,
    is_gone,
    reason,
    refuses_a_value,
)
from peltier_store.registry.errors import InvalidRecord, RegistryError, RegistryFull, RegistryGone, RegistryRewound
from peltier_store.registry.records import AuditFilter, Position
from peltier_store.registry.schema import refuse_unfinished_restore
from peltier_store.registry.tables import AdapterRow, AuditRow, ChangeRow, RevisionRow, TenantRow, UtcDateTime

T = TypeVar("T")

_VERIFIED = "verified registry"
# The actor of a change that is not in the audit log.
NO_ACTOR = ""
# If the database does not answer, each writer would otherwise wait for the time-outs of all writers before it.
_TURN_SECONDS = 30.0
# The database's clock decides between times of different machines, whose own clocks may be hours apart.
_CLOCK = func.clock_timestamp(type_=UtcDateTime()).label("at")
# A replica that missed more changes reads everything again.
_KEPT_CHANGES = 10_000
_CHANGES_AT_ONCE = 1_000
# Statements of every upload are made once: making one takes longer than SQLite takes to run it.
_CHANGE_ID = select(ChangeRow.id)
_ID_OF_LAST = _CHANGE_ID.where(ChangeRow.number == RevisionRow.number).scalar_subquery().label("last_id")
_ID_OF_SEEN = (
    _CHANGE_ID.where(ChangeRow.number == bindparam("seen", type_=BigInteger)).scalar_subquery().label("seen_id")
)
_NEXT_REVISION = (
    update(RevisionRow)
    .values(number=RevisionRow.number + 1)
    .returning((RevisionRow.number - 1).label("last"), RevisionRow.registry_id, _CLOCK, _ID_OF_SEEN)
)
_CHANGE = insert(ChangeRow).inline()
_OLD_CHANGES = delete(ChangeRow).where(ChangeRow.number < bindparam("first", type_=BigInteger))
_AUDIT = insert(AuditRow).inline()
_POSITION = select(RevisionRow.number.label("last"), RevisionRow.registry_id, _ID_OF_LAST, _ID_OF_SEEN, _CLOCK)
_ALL_ENTRIES = AuditFilter()
_IDENTITY, _TIME = select(RevisionRow.registry_id), select(_CLOCK)


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

    After `identity`, another registry at the same place is a RegistryGone. After `follow`, a database that lacks a
    change that was read is a RegistryRewound, until `follow` has read everything again. After a failure of the database
    nothing is read or written while a dump is being loaded.
    """

    def __init__(self, url: URL) -> None:
        self._url = url
        self._engines = create_engines(url)
        # SQLite wakes waiting writers in any order. Here the writers of this process wait in the order of their calls.
        self._turn = asyncio.Lock()
        self._unfinished: set[asyncio.Task[object]] = set()
        self._identity: str | None = None
        self._seen: Position | None = None
        self._num_failures = self._num_checked_failures = 0
        self._clock = datetime.now(UTC), time.monotonic()

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
        self._identity = self._identity or found
        return found

    async def position(self) -> Position:
        """The state of the database."""
        return await self.read(lambda connection: self._locate(connection, None))

    def now(self) -> datetime:
        """The database's time, as of the last position that was read and by this process's clock of durations."""
        at, read_at = self._clock
        return at + timedelta(seconds=time.monotonic() - read_at)

    async def follow(self, since: Position | None, work: Callable[[Connection, Position], T]) -> T:
        """Runs `work` on one state of the database with its position; what it reads is what this process knows.

        Raises RegistryRewound if the database lacks the change that was read last, which is `since` or a later one, or
        if so many followed that it is not known. Without `since` raises RegistryGone while a dump is being loaded.
        """

        def read(connection: Connection) -> tuple[Position, T]:
            if since is None:
                refuse_unfinished_restore(connection)
            position = self._locate(connection, since and (self._seen or since))
            return position, work(connection, position)

        position, result = await self.read(read)
        self._seen = position
        return result

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` on one consistent state of the database."""
        return await self._finish(self._run(Access.READ, work))

    async def write(self, actor: str, work: Callable[[WriteTransaction], T]) -> T:
        """Runs `work` as the only writer, with a new revision. An exception in it undoes all of its changes.

        The changes survive a power loss once this returns, and before anybody reads them.
        """
        return await self._finish(self._write(actor, work))

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

    async def _write(self, actor: str, work: Callable[[WriteTransaction], T]) -> T:
        def write(connection: Connection) -> T:
            seen = self._seen
            row = self._known(connection.execute(_NEXT_REVISION, _number_of(seen)).one_or_none(), seen)
            revision = row.last + 1
            _record_change(connection, revision)
            return work(WriteTransaction(connection, row.at, actor, revision))

        async with self._own_turn():
            return await self._run(Access.WRITE, write)

    def _locate(self, connection: Connection, seen: Position | None) -> Position:
        row = self._known(connection.execute(_POSITION, _number_of(seen)).one_or_none(), seen)
        self._clock = row.at, time.monotonic()
        return Position(row.last, row.last_id)

    def _known(self, row: Row[Any] | None, seen: Position | None) -> Row[Any]:
        """Raises RegistryGone for no or another registry, and RegistryRewound for one that lacks the change `seen`."""
        if row is None:
            raise _empty(self.name)
        self._require_same(row.registry_id)
        if seen is not None and row.seen_id != seen.change_id:
            raise RegistryRewound(
                f"the registry {self.name} is at revision {row.last} and lacks the change that was its revision "
                f"{seen.revision}: it was restored, lost changes in a crash, or changed {_KEPT_CHANGES:,} times since"
            )
        return row

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

    def _check_failures(self, connection: Connection) -> None:
        """Whoever has seen the database fail may meet it while a dump is being loaded. A dump may end in the change
        that was read last, so positions do not show it."""
        if self._num_checked_failures != (found := self._num_failures):
            refuse_unfinished_restore(connection)
            self._num_checked_failures = found

    async def _run(self, access: Access, work: Callable[[Connection], T]) -> T:
        def verified(connection: Connection) -> T:
            self._verify(connection)
            self._check_failures(connection)
            return work(connection)

        try:
            with self._as_registry_errors():
                return await self._engines.run(access, verified)
        except RegistryError as error:
            if type(error) in (RegistryError, RegistryGone):
                self._num_failures += 1
            raise

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


def _number_of(seen: Position | None) -> dict[str, int | None]:
    return {"seen": None if seen is None else seen.revision}


def _record_change(connection: Connection, number: int) -> None:
    connection.execute(_CHANGE, {"number": number, "id": secrets.token_hex(8)})
    if number % _CHANGES_AT_ONCE == 0:
        connection.execute(_OLD_CHANGES, {"first": number - _KEPT_CHANGES})


def read_clock(connection: Connection) -> datetime:
    """The database's time."""
    return connection.execute(_TIME).scalar_one()


def read_identity(connection: Connection) -> str:
    found = connection.execute(_IDENTITY).scalar_one_or_none()
    if found is None:
        raise _empty(describe(connection.engine.url))
    return found


def _empty(name: str) -> RegistryGone:
    return RegistryGone(f"the registry {name} is empty")


def read_audit(
    connection: Connection, wanted: AuditFilter = _ALL_ENTRIES, *, limit: int = 100, before_id: int | None = None
) -> list[AuditRecord]:
    """At most `limit` entries of the audit log, newest first; `before_id` is the last id of the previous page."""
    entries = select(AuditRow.__table__).order_by(AuditRow.id.desc()).limit(limit)
    if before_id is not None:
        entries = entries.where(AuditRow.id < before_id)
    for name in ("tenant", "actor", "action"):
        if (value := getattr(wanted, name)) is not None:
            entries = entries.where(getattr(AuditRow, name) == value)
    if wanted.since is not None:
        entries = entries.where(AuditRow.at >= wanted.since)
    if wanted.until is not None:
        entries = entries.where(AuditRow.at < wanted.until)
    return [AuditRecord(**row._mapping) for row in connection.execute(entries)]
