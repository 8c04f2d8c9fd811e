"""Aliases: names for versions, changed atomically, with a history for rollbacks.

Each change is a row, and rows are never removed. The newest row is the current state. Each row refers to the row of the
split that was in force before, which a rollback restores. So two rollbacks go two steps back, and rolling back a
deletion restores the alias. A split names only live versions, because a version that an alias names cannot be deleted.
"""

import math
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from peltier_client.protocol.aliases import AliasChange
from sqlalchemy import ColumnElement, Connection, Row, Select, Table, and_, insert, select, update

from peltier_store.registry.errors import InvalidRecord, RegistryConflict, VersionUnknown
from peltier_store.registry.lookup import require_adapter, require_live
from peltier_store.registry.records import AliasRecord, check_name
from peltier_store.registry.tables import ENDS_WITH_ALIAS, AliasRow, Base
from peltier_store.registry.transactions import WriteTransaction

VersionShares: TypeAlias = Mapping[int, float]

_TOLERANCE = 1e-6
_MAX_HISTORY = 1000
# Per adapter, because every response about an adapter lists all of them.
MAX_ALIASES = 100


def set_alias(writing: WriteTransaction, tenant: str, name: str, alias: str, split: VersionShares) -> AliasRecord:
    check_alias(alias)
    check_split(alias, split)
    adapter_id = require_adapter(writing.connection, tenant, name)
    require_live(writing.connection, adapter_id, name, *split)
    _require_room(writing.connection, adapter_id, name, alias)
    current = find_current(writing.connection, adapter_id, alias)
    is_same = current is not None and current.split == _stored(split)
    if current is not None and is_same and not _is_guarded(writing.connection, adapter_id, alias):
        # A repeated call, whose first answer was lost, must not make a rollback go back to what the alias means now.
        return alias_of(current)
    previous_id = None if current is None else current.previous_id if current.split is None else current.id
    changed = change(writing, adapter_id, alias, split, previous_id)
    writing.audit(tenant, "set_alias", f"{name}@{alias}", split=_stored(split))
    return changed


def rollback_alias(writing: WriteTransaction, tenant: str, name: str, alias: str) -> AliasRecord:
    """Restores the previous split; raises RegistryConflict if there is none or its versions are deleted."""
    adapter_id = require_adapter(writing.connection, tenant, name)
    current = find_current(writing.connection, adapter_id, alias)
    if current is None:
        raise _unknown(name, alias)
    if current.previous_id is None:
        raise RegistryConflict(f"alias {alias!r} of adapter {name!r} has no earlier split")
    target = find_change(writing.connection, current.previous_id)
    split = split_of(target.split)
    try:
        require_live(writing.connection, adapter_id, name, *split)
    except VersionUnknown as error:
        raise RegistryConflict(
            f"alias {alias!r} cannot go back to {_shown(split)}: {error}; undelete it or set the alias again"
        ) from error
    _require_room(writing.connection, adapter_id, name, alias)
    changed = change(writing, adapter_id, alias, split, target.previous_id)
    writing.audit(tenant, "rollback_alias", f"{name}@{alias}", split=_stored(split))
    return changed


def delete_alias(writing: WriteTransaction, tenant: str, name: str, alias: str) -> None:
    adapter_id = require_adapter(writing.connection, tenant, name)
    current = require_current(writing.connection, adapter_id, name, alias)
    change(writing, adapter_id, alias, None, current.id)
    writing.audit(tenant, "delete_alias", f"{name}@{alias}")


def delete_all(writing: WriteTransaction, adapter_id: int) -> None:
    for current in _all_current(writing.connection, adapter_id):
        change(writing, adapter_id, current.alias, None, current.id)


def aliases_of_version(connection: Connection, adapter_id: int, number: int) -> list[str]:
    """The aliases that name this version, or have a guarded change to it in progress, in order."""
    named = {row.alias for row in _all_current(connection, adapter_id) if str(number) in row.split}
    for table, running in _guards(adapter_id):
        named.update(connection.execute(select(table.c.alias).where(running, table.c.candidate == number)).scalars())
    return sorted(named)


def read_history(connection: Connection, tenant: str, name: str, alias: str) -> list[AliasChange]:
    """The last thousand changes of an alias, newest first. Raises AdapterUnknown or VersionUnknown."""
    adapter_id = require_adapter(connection, tenant, name)
    changes = select_changes().where(AliasRow.adapter_id == adapter_id, AliasRow.alias == alias)
    rows = connection.execute(changes.order_by(AliasRow.id.desc()).limit(_MAX_HISTORY)).all()
    if not rows:
        raise _unknown(name, alias)
    return [
        AliasChange(versions=split_of(row.split or {}), created_at=row.created_at, created_by=row.created_by)
        for row in rows
    ]


def select_aliases() -> Select[*tuple[object, ...]]:
    """Selects every alias that is not deleted, for `alias_of`."""
    return select_changes().where(AliasRow.is_current, AliasRow.split.is_not(None))


def select_changes() -> Select[*tuple[object, ...]]:
    return select(AliasRow.__table__)


def alias_of(row: Row[*tuple[object, ...]]) -> AliasRecord:
    return AliasRecord(row.alias, split_of(row.split), row.created_at, row.created_by, row.id)


def split_of(stored: Mapping[str, float]) -> dict[int, float]:
    return {int(number): share for number, share in stored.items()}


def check_alias(alias: str) -> None:
    check_name("alias", alias)
    if alias.isdecimal():
        raise InvalidRecord(f"the alias {alias!r} looks like a version number")


def check_split(alias: str, split: VersionShares) -> None:
    """Raises InvalidRecord unless the shares are positive and sum to 1."""
    for number, share in split.items():
        if not (math.isfinite(share) and share > 0):
            raise InvalidRecord(f"alias {alias!r} gives version {number} the share {share}: it must be above 0")
    total = math.fsum(split.values())
    if abs(total - 1) > _TOLERANCE:
        raise InvalidRecord(f"the shares of alias {alias!r} sum to {total:g}: they must sum to 1")


def find_current(connection: Connection, adapter_id: int, alias: str) -> Row[*tuple[object, ...]] | None:
    """The current state of an alias; without a split it was deleted."""
    mine = select_changes().where(AliasRow.adapter_id == adapter_id, AliasRow.alias == alias, AliasRow.is_current)
    return connection.execute(mine).one_or_none()


def require_current(connection: Connection, adapter_id: int, name: str, alias: str) -> Row[*tuple[object, ...]]:
    """The current state of an alias that is not deleted; raises VersionUnknown."""
    current = find_current(connection, adapter_id, alias)
    if current is None or current.split is None:
        raise _unknown(name, alias)
    return current


def find_change(connection: Connection, change_id: int) -> Row[*tuple[object, ...]]:
    return connection.execute(select_changes().where(AliasRow.id == change_id)).one()


def _all_current(connection: Connection, adapter_id: int) -> list[Row[*tuple[object, ...]]]:
    return list(connection.execute(select_aliases().where(AliasRow.adapter_id == adapter_id)).all())


def _require_room(connection: Connection, adapter_id: int, name: str, alias: str) -> None:
    others = [row for row in _all_current(connection, adapter_id) if row.alias != alias]
    if len(others) >= MAX_ALIASES:
        raise RegistryConflict(
            f"adapter {name!r} has {len(others)} aliases, and the maximum is {MAX_ALIASES}: delete one first"
        )


def change(
    writing: WriteTransaction, adapter_id: int, alias: str, split: VersionShares | None, previous_id: int | None
) -> AliasRecord:
    """Makes the alias mean `split`. A guarded change of it in progress ends."""
    mine = (AliasRow.adapter_id == adapter_id, AliasRow.alias == alias, AliasRow.is_current)
    writing.connection.execute(update(AliasRow).where(*mine).values(is_current=False))
    ended = {"state": "stopped", "reason": f"the alias was changed by {writing.actor}", "ended_at": writing.at}
    for table, running in _guards(adapter_id):
        writing.connection.execute(update(table).where(running, table.c.alias == alias).values(**ended))
    row = {
        "adapter_id": adapter_id,
        "alias": alias,
        "split": None if split is None else _stored(split),
        "previous_id": previous_id,
        "is_current": True,
        "created_at": writing.at,
        "created_by": writing.actor,
    }
    change_id = writing.connection.execute(insert(AliasRow).returning(AliasRow.id).values(**row)).scalar_one()
    writing.stamp_adapter(adapter_id)
    return AliasRecord(alias, dict(split or {}), writing.at, writing.actor, change_id)


def _guards(adapter_id: int) -> Iterator[tuple[Table, ColumnElement[bool]]]:
    """The tables of guarded changes, each with the condition for those of an adapter that are in progress."""
    for table in Base.metadata.tables.values():
        if table.info.get(ENDS_WITH_ALIAS):
            yield table, and_(table.c.adapter_id == adapter_id, table.c.state == "running")


def _is_guarded(connection: Connection, adapter_id: int, alias: str) -> bool:
    found = (select(table).where(running, table.c.alias == alias) for table, running in _guards(adapter_id))
    return any(connection.execute(one).first() is not None for one in found)


def _stored(split: VersionShares) -> dict[str, float]:
    return {str(number): split[number] for number in sorted(split)}


def _shown(split: VersionShares) -> str:
    return ", ".join(f"{number}: {share:g}" for number, share in sorted(split.items()))


def _unknown(name: str, alias: str) -> VersionUnknown:
    return VersionUnknown(f"adapter {name!r} has no alias {alias!r}")
