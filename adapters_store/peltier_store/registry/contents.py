"""The rows of a registry as plain JSON, read from one database and written to another of either kind, for backups."""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, islice
from typing import Any

from alembic.script import ScriptDirectory
from sqlalchemy import Column, Connection, Table, delete, func, insert, select

from peltier_store.registry.errors import BlobBusy, InvalidRecord, RegistryConflict
from peltier_store.registry.operations import Operations, reads
from peltier_store.registry.schema import MIGRATIONS
from peltier_store.registry.tables import (
    IS_BLOB,
    IS_LOCAL,
    Base,
    ChangeRow,
    CollectionRow,
    ReservationRow,
    RevisionRow,
    TenantRow,
    UtcDateTime,
)
from peltier_store.registry.transactions import NO_ACTOR, WriteTransaction

# Not dumped: the revision, and claims of uploads and collectors belong to one database.
_LOCAL = {row.__tablename__ for row in (RevisionRow, ChangeRow, ReservationRow, CollectionRow)}
# A report has up to a mebibyte.
_CHUNK = 100


@dataclass(frozen=True)
class DumpedRow:
    """One row of one table, with JSON values."""

    table: str
    row: Mapping[str, Any]

    @property
    def digests(self) -> set[str]:
        """The blobs that it needs."""
        table = Base.metadata.tables.get(self.table)
        names = () if table is None else (column.name for column in table.columns if IS_BLOB in column.info)
        return {self.row[name] for name in names if self.row.get(name) is not None}


def _tables() -> dict[str, Table]:
    """Each table of a dump after those that it refers to."""
    return {
        table.name: table
        for table in Base.metadata.sorted_tables
        if table.name not in _LOCAL and not table.info.get(IS_LOCAL)
    }


def _dump(connection: Connection, take: Callable[[DumpedRow], object]) -> None:
    """Calls `take` with every row of one state that another database needs, in an order in which it can insert them. On
    SQLite another thread calls it."""
    for table in _tables().values():
        ordered = select(table).order_by(*table.primary_key).execution_options(yield_per=_CHUNK)
        for row in connection.execute(ordered):
            take(DumpedRow(table.name, {key: _to_json(value) for key, value in row._mapping.items()}))


def _require_empty(connection: Connection) -> None:
    """Raises RegistryConflict if the registry holds more than the tenant that every registry begins with."""
    for table in _tables().values():
        count = connection.execute(select(func.count()).select_from(table)).scalar_one()
        if count > (1 if table.name == TenantRow.__tablename__ else 0):
            raise RegistryConflict(f"the registry is not empty: its table {table.name!r} holds {count} rows")


def _require_no_collectors(writing: WriteTransaction) -> None:
    """Raises BlobBusy while a collector is deleting blobs."""
    deleting = select(CollectionRow.digest).where(CollectionRow.expires_at > writing.at).limit(1)
    if writing.connection.execute(deleting).first() is not None:
        raise BlobBusy("blobs of this registry are being deleted; try again later, at most an hour from now")


def _insert(writing: WriteTransaction, lines: Iterable[DumpedRow]) -> None:
    """Fills an empty registry with the rows of another; replicas see all of them as changed."""
    writing.connection.execute(delete(TenantRow))
    tables = _tables()
    for name, group in groupby(lines, key=lambda line: line.table):
        table = tables.get(name)
        if table is None:
            raise InvalidRecord(f"the table {name!r} is unknown")
        rows = (_from_json(table, line.row, writing.revision) for line in group)
        while chunk := list(islice(rows, _CHUNK)):
            writing.connection.execute(insert(table), chunk)
    if writing.connection.dialect.name == "postgresql":
        for table, column in _generated_keys():
            _advance_sequence(writing.connection, table, column)


def _to_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _from_json(table: Table, row: Mapping[str, Any], revision: int) -> dict[str, Any]:
    wrong = row.keys() ^ table.columns.keys()
    if wrong:
        raise InvalidRecord(f"a row of table {table.name!r} has a missing or unknown column {min(wrong)!r}")
    values = {column.name: _value(column, row[column.name]) for column in table.columns}
    return values | {"revision": revision} if "revision" in values else values


def _value(column: Column[Any], value: Any) -> Any:
    if value is None or not isinstance(column.type, UtcDateTime):
        return value
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise InvalidRecord(
            f"column {column.name!r} of table {column.table.name!r} is not a time: {value!r}"
        ) from error


def _generated_keys() -> Iterator[tuple[Table, Column[Any]]]:
    """The keys that PostgreSQL generates."""
    for table in _tables().values():
        if table.autoincrement_column is not None:
            yield table, table.autoincrement_column


def _advance_sequence(connection: Connection, table: Table, column: Column[Any]) -> None:
    # PostgreSQL's sequences ignore keys that were inserted explicitly, and would generate them again.
    sequence = func.pg_get_serial_sequence(table.name, column.name)
    highest = func.max(column)
    connection.execute(select(func.setval(sequence, func.coalesce(highest, 1), highest.is_not(None))))


def schema_revision() -> str:
    """The schema revision of dumped rows: the newest that this code knows."""
    return str(ScriptDirectory(str(MIGRATIONS)).get_current_head())


class Contents(Operations):
    """The rows of a registry: tenants, keys, adapters, versions, reports, aliases, files, trainings and the
    audit log."""

    dump = reads(_dump)
    require_empty = reads(_require_empty)

    async def restore(self, lines: Iterable[DumpedRow], ready: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Inserts the rows of a dump in one transaction. `ready` runs in it, when no blob can be deleted any more.

        Raises RegistryConflict unless the registry is empty, BlobBusy while its blobs are being deleted, InvalidRecord
        for an invalid row, or what `ready` raises.
        """
        wait = self._transactions.waiting(ready)

        def work(writing: WriteTransaction) -> None:
            _require_empty(writing.connection)
            _require_no_collectors(writing)
            # `ready` may list a large bucket.
            writing.allow_idling()
            wait()
            _insert(writing, lines)

        await self._transactions.write(NO_ACTOR, work)
