"""The queue of trainings and of batches: rows that processes claim, and hold until they release them or die.

A holder has an entry until its lease expires, by the clock of the database, and renews the lease meanwhile. A claim
locks the entry's row and skips those that others have locked (SKIP LOCKED; SQLite has one writer at a time), so an
entry never has two holders, and on PostgreSQL no claim waits for the claims or uploads of another process. A holder
that was too slow, and whose entry another has taken, learns it by LeaseLost at its next call and stores nothing.
"""

import os
import secrets
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, func, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute

from peltier_store.registry.errors import LeaseLost
from peltier_store.registry.extensions.queue_records import StoredBatch, StoredTraining
from peltier_store.registry.transactions import QueueTransaction, WriteTransaction

LEASE = timedelta(seconds=60)
MAX_ATTEMPTS = 5
# Much longer than any lease: after a failover the clock may be minutes behind, and the holders are still alive.
_MAX_LEASE = timedelta(hours=1)
NO_HOLDER: Mapping[str, Any] = {"holder": None, "lease_expires_at": None}

E = TypeVar("E", StoredTraining, StoredBatch)


def is_over(row: Any, now: datetime) -> ColumnElement[bool]:
    """Whether nobody holds an entry, or its holder has died. A lease that ends later than any was given before the
    clock was put back."""
    ends: InstrumentedAttribute[datetime | None] = row.lease_expires_at
    return ends.is_(None) | (ends <= now) | (ends > now + _MAX_LEASE)


def follow(wanted: Select[Any], row: Any, created_at: datetime, entry_id: str) -> Select[Any]:
    """Those of the wanted rows that are older than this one."""
    same_time = (row.created_at == created_at) & (row.id < entry_id)
    return wanted.where(or_(row.created_at < created_at, same_time))


@dataclass(frozen=True)
class Queue(Generic[E]):
    """The entries of one table, as records; `noun` names one in messages."""

    record: type[E]
    noun: str

    def select(self) -> Select[Any]:
        """Selects every entry, for `read`."""
        return select(self.record.__table__)

    def read(self, connection: Connection, wanted: Select[Any]) -> list[E]:
        return [self.record(**row._mapping) for row in connection.execute(wanted)]

    def find(self, connection: Connection, entry_id: str, *, lock: bool = False) -> E | None:
        """With `lock` nobody else changes the entry before the end of this transaction."""
        wanted = self.select().where(self.record.id == entry_id)
        return next(iter(self.read(connection, wanted.with_for_update() if lock else wanted)), None)

    def change(self, writing: QueueTransaction, entry: E, **values: Any) -> E:
        """The entry, which this transaction has locked, with these values."""
        writing.connection.execute(update(self.record).where(self.record.id == entry.id).values(**values))
        return replace(entry, **values)

    def count(self, connection: Connection, final: Collection[str]) -> dict[str, int]:
        """How many entries there are in each state but the `final` ones."""
        counted = select(self.record.state, func.count()).where(self.record.state.not_in(final))
        return {row[0]: row[1] for row in connection.execute(counted.group_by(self.record.state))}

    def lock_first(self, claiming: QueueTransaction, wanted: Select[Any]) -> E | None:
        """The first of the wanted entries that no other transaction has locked."""
        locked = wanted.limit(1).with_for_update(skip_locked=True)
        return next(iter(self.read(claiming.connection, locked)), None)

    def held(self, writing: WriteTransaction, entry_id: str, holder: str) -> E:
        """The entry that `holder` has. Its lease may have expired, as long as nobody else has taken it."""
        entry = self.find(writing.connection, entry_id, lock=True)
        if entry is None or entry.holder != holder:
            raise LeaseLost(f"{holder} does not have the {self.noun} {entry_id!r} any more")
        return entry


def leased(writing: QueueTransaction) -> dict[str, Any]:
    """The values of an entry whose lease begins now."""
    return {"lease_expires_at": writing.at + LEASE}


def claimed(claiming: QueueTransaction, entry: StoredTraining | StoredBatch, holder: str) -> dict[str, Any]:
    """The values of an entry that `holder` has from now on; this is an attempt."""
    return {"holder": holder, "attempts": entry.attempts + 1, **leased(claiming)}


def unattempted(entry: StoredTraining | StoredBatch) -> int:
    """The attempts of an entry whose holder stops, or has found that something is temporarily wrong."""
    return max(entry.attempts - 1, 0)


def create_holder_name() -> str:
    """The name by which a process holds entries: `HOST:PID:TOKEN`, another one at every call.

    Containers may share the host's name and have the same process id, and so may a process that is started again."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
