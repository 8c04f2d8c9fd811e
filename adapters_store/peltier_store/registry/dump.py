"""The whole registry as rows of plain JSON, out of one database and into another of either kind."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, islice
from typing import Any

from alembic.script import ScriptDirectory
from sqlalchemy import Column, Table, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from peltier_store.registry.database import MIGRATIONS
from peltier_store.registry.errors import BlobBusy, InvalidRecord, RegistryConflict
from peltier_store.registry.tables import Base, CollectionRow, ReservationRow, RevisionRow, TenantRow, UtcDateTime
from peltier_store.registry.transactions import WriteTransaction

# What belongs to one database alone: its count of changes, and who is just storing or deleting bytes.
_OWN = {row.__tablename__ for row in (RevisionRow, ReservationRow, CollectionRow)}
# Each after those that it refers to.
_TABLES: dict[str, Table] = {table.name: table for table in Base.metadata.sorted_tables if table.name not in _OWN}
_CHUNK = 500


@dataclass(frozen=True)
class Line:
    """One row of one table; its values are what JSON has."""

    table: str
    row: Mapping[str, Any]


async def read_lines(connection: AsyncConnection) -> AsyncIterator[Line]:
    """Every row that another database needs, in an order in which it can take them."""
    for table in _TABLES.values():
        async with connection.stream(select(table).order_by(*table.primary_key)) as rows:
            async for row in rows:
                yield Line(table.name, {key: _to_json(value) for key, value in row._mapping.items()})


async def require_empty(connection: AsyncConnection) -> None:
    """Raises RegistryConflict where the registry holds anything but the tenant that every one begins with."""
    for table in _TABLES.values():
        count = (await connection.execute(select(func.count()).select_from(table))).scalar_one()
        if count > (1 if table.name == TenantRow.__tablename__ else 0):
            raise RegistryConflict(f"the registry is not empty: its table {table.name!r} holds {count} rows")


async def require_no_collectors(writing: WriteTransaction) -> None:
    """Raises BlobBusy where somebody is deleting blobs."""
    deleting = select(CollectionRow.digest).where(CollectionRow.expires_at > writing.at).limit(1)
    if (await writing.connection.execute(deleting)).first() is not None:
        raise BlobBusy("blobs of this registry are just being deleted; try again when that has ended, within an hour")


async def write_lines(writing: WriteTransaction, lines: Iterable[Line]) -> None:
    """Fills an empty registry with the rows of another; whoever follows this one sees all of them as changed."""
    await writing.connection.execute(delete(TenantRow))
    for name, group in groupby(lines, key=lambda line: line.table):
        table = _TABLES.get(name)
        if table is None:
            raise InvalidRecord(f"a registry has no table {name!r}")
        rows = (_from_json(table, line.row, writing.revision) for line in group)
        while chunk := list(islice(rows, _CHUNK)):
            await writing.connection.execute(insert(table), chunk)
    if writing.connection.dialect.name == "postgresql":
        for table, column in _numbered():
            await _count_on(writing.connection, table, column)


def _to_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _from_json(table: Table, row: Mapping[str, Any], revision: int) -> dict[str, Any]:
    wrong = row.keys() ^ table.columns.keys()
    if wrong:
        raise InvalidRecord(f"a row of table {table.name!r} has no column {min(wrong)!r}, or one too many")
    values = {column.name: _value(column, row[column.name]) for column in table.columns}
    return values | {"revision": revision} if "revision" in values else values


def _value(column: Column[Any], value: Any) -> Any:
    if value is None or not isinstance(column.type, UtcDateTime):
        return value
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise InvalidRecord(f"column {column.name!r} of table {column.table.name!r} is no time: {value!r}") from error


def _numbered() -> Iterator[tuple[Table, Column[Any]]]:
    """The keys that PostgreSQL hands out by itself."""
    for table in _TABLES.values():
        if table.autoincrement_column is not None:
            yield table, table.autoincrement_column


async def _count_on(connection: AsyncConnection, table: Table, column: Column[Any]) -> None:
    # PostgreSQL takes no notice of numbers that were given, and would hand out the first of them again.
    sequence = func.pg_get_serial_sequence(table.name, column.name)
    highest = func.max(column)
    await connection.execute(select(func.setval(sequence, func.coalesce(highest, 1), highest.is_not(None))))


def schema_revision() -> str:
    """The schema that these rows have: the newest that this code knows."""
    return str(ScriptDirectory(str(MIGRATIONS)).get_current_head())
