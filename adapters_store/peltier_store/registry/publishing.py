"""Publishes new versions, with numbers that are never reused."""

from dataclasses import replace

from sqlalchemy import Connection, bindparam, insert, update

from peltier_store.registry.aliases import set_alias
from peltier_store.registry.claims import consume
from peltier_store.registry.lookup import find_live_bytes
from peltier_store.registry.records import Reservation, Version
from peltier_store.registry.room import require_room_for_adapter, require_room_for_bytes
from peltier_store.registry.tables import AdapterRow, VersionRow
from peltier_store.registry.tenants import require_quotas
from peltier_store.registry.transactions import WriteTransaction

_INSERT_VERSION = insert(VersionRow).inline()
_OF_ADAPTER = AdapterRow.id, AdapterRow.last_number
_COUNT_VERSION = (
    update(AdapterRow)
    .where(AdapterRow.tenant == bindparam("its_tenant"), AdapterRow.name == bindparam("its_name"))
    .values(last_number=AdapterRow.last_number + 1, revision=bindparam("its_revision"))
    .returning(*_OF_ADAPTER)
)
_INSERT_ADAPTER = insert(AdapterRow).returning(*_OF_ADAPTER)


def publish(
    writing: WriteTransaction, draft: Version, reservation: Reservation, alias: str | None
) -> tuple[Version, bool]:
    """Numbers the draft and makes it live, unless a live version has its bytes; then points the alias to it."""
    existing = require_room(writing.connection, draft)
    consume(writing.connection, reservation)
    version = existing or _insert(writing, replace(draft, created_at=writing.at, created_by=writing.actor))
    if alias is not None:
        set_alias(writing, version.tenant, version.name, alias, {version.number: 1.0})
    return version, existing is None


def require_room(connection: Connection, draft: Version) -> Version | None:
    """Raises QuotaReached if the draft exceeds a quota; returns the live version that already has its bytes."""
    quotas = require_quotas(connection, draft.tenant)
    existing = find_live_bytes(connection, draft.tenant, draft.name, draft.digest)
    if existing is None:
        require_room_for_adapter(connection, quotas, draft.tenant, draft.name)
        require_room_for_bytes(connection, quotas, draft)
    return existing


def _insert(writing: WriteTransaction, draft: Version) -> Version:
    adapter_id, number = _next_number(writing, draft)
    row = {
        "adapter_id": adapter_id,
        "number": number,
        "digest": draft.digest,
        "size_bytes": draft.size_bytes,
        "preset": draft.preset,
        "manifest": draft.manifest,
        "created_at": draft.created_at,
        "created_by": draft.created_by,
        "revision": writing.revision,
    }
    writing.connection.execute(_INSERT_VERSION, row)
    writing.audit(draft.tenant, "publish", f"{draft.name}@{number}", digest=draft.digest)
    return replace(draft, number=number)


def _next_number(writing: WriteTransaction, draft: Version) -> tuple[int, int]:
    # Writers are serialised, so no other one inserts the row in between.
    its = {"its_tenant": draft.tenant, "its_name": draft.name, "its_revision": writing.revision}
    row = writing.connection.execute(_COUNT_VERSION, its).one_or_none()
    if row is None:
        first = {"tenant": draft.tenant, "name": draft.name, "last_number": 1, "is_public": False}
        row = writing.connection.execute(_INSERT_ADAPTER, {**first, "revision": writing.revision}).one()
    return row.id, row.last_number
