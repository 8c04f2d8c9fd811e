"""Deletion: marks versions as deleted, undeletes them, and purges them after the grace period."""

from collections import defaultdict
from dataclasses import replace
from datetime import datetime

from sqlalchemy import ColumnElement, delete, select, update

from peltier_store.registry import aliases
from peltier_store.registry.errors import RegistryConflict, VersionUnknown
from peltier_store.registry.lookup import (
    LIVE,
    find_live_bytes,
    find_version,
    read_digests,
    require_adapter,
    require_live,
)
from peltier_store.registry.marks import mark
from peltier_store.registry.records import Version
from peltier_store.registry.room import require_room_for_adapter
from peltier_store.registry.tables import AdapterRow, VersionRow
from peltier_store.registry.tenants import require_quotas
from peltier_store.registry.transactions import WriteTransaction


def delete_version(writing: WriteTransaction, tenant: str, name: str, number: int) -> None:
    """Marks one live version as deleted."""
    adapter_id = require_adapter(writing.connection, tenant, name)
    require_live(writing.connection, adapter_id, name, number)
    users = aliases.aliases_of_version(writing.connection, adapter_id, number)
    if users:
        raise RegistryConflict(
            f"version {number} of adapter {name!r} is in use by its alias {users[0]!r}; move or delete the alias first"
        )
    _mark_deleted(writing, adapter_id, VersionRow.number == number)
    writing.audit(tenant, "delete_version", f"{name}@{number}")


def delete_adapter(writing: WriteTransaction, tenant: str, name: str) -> int:
    """Marks every live version as deleted and deletes the aliases; returns how many versions there were."""
    adapter_id = require_adapter(writing.connection, tenant, name)
    live = select(VersionRow.number).where(VersionRow.adapter_id == adapter_id, LIVE).order_by(VersionRow.number)
    numbers = list(writing.connection.execute(live).scalars())
    aliases.delete_all(writing, adapter_id)
    _mark_deleted(writing, adapter_id, LIVE)
    writing.audit(tenant, "delete_adapter", name, versions=numbers)
    return len(numbers)


def undelete(writing: WriteTransaction, tenant: str, name: str, number: int) -> Version:
    """Makes a deleted version live again; one that is live stays as it is."""
    version = find_version(writing.connection, tenant, name, number)
    if version is None:
        raise VersionUnknown(
            f"adapter {name!r} has no version {number} to undelete: it never existed, or its grace period is over"
        )
    if version.deleted_at is None:
        return version
    twin = find_live_bytes(writing.connection, tenant, name, version.digest)
    if twin is not None:
        raise RegistryConflict(f"the bytes of version {number} of adapter {name!r} are live as version {twin.number}")
    quotas = require_quotas(writing.connection, tenant)
    require_room_for_adapter(writing.connection, quotas, tenant, name)
    mark(writing, version, deleted_at=None, revision=writing.revision)
    writing.audit(tenant, "undelete", f"{name}@{number}")
    return replace(version, deleted_at=None)


def purge(writing: WriteTransaction, before: datetime) -> set[str]:
    """Removes versions deleted before then; returns the digests that no remaining version has."""
    condition = VersionRow.deleted_at < before
    found = (
        select(VersionRow.adapter_id, AdapterRow.tenant, AdapterRow.name, VersionRow.number, VersionRow.digest)
        .join(AdapterRow, AdapterRow.id == VersionRow.adapter_id)
        .where(condition)
    )
    over = writing.connection.execute(found).all()
    writing.connection.execute(delete(VersionRow).where(condition))
    purged: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for row in over:
        purged[row.adapter_id, row.tenant, row.name].append(row.number)
    for (adapter_id, tenant, name), numbers in purged.items():
        writing.stamp_adapter(adapter_id)
        writing.audit(tenant, "purge", name, versions=sorted(numbers))
    return {row.digest for row in over} - read_digests(writing.connection)


def _mark_deleted(writing: WriteTransaction, adapter_id: int, condition: ColumnElement[bool]) -> None:
    chosen = update(VersionRow).where(VersionRow.adapter_id == adapter_id, LIVE, condition)
    writing.connection.execute(chosen.values(deleted_at=writing.at))
    writing.stamp_adapter(adapter_id)
    # A later upload under this name must not be public because an earlier adapter was.
    live = select(VersionRow.number).where(VersionRow.adapter_id == adapter_id, LIVE).exists()
    closed = update(AdapterRow).where(AdapterRow.id == adapter_id, ~live).values(is_public=False)
    writing.connection.execute(closed)
