"""Publishes new versions, with numbers that are never reused."""

from dataclasses import replace

from sqlalchemy import insert, update
from sqlalchemy.ext.asyncio import AsyncConnection

from peltier_store.registry.aliases import set_alias
from peltier_store.registry.claims import consume
from peltier_store.registry.lookup import find_live_bytes
from peltier_store.registry.records import Reservation, Version
from peltier_store.registry.room import require_room_for_adapter, require_room_for_bytes
from peltier_store.registry.tables import AdapterRow, VersionRow
from peltier_store.registry.tenants import require_quotas
from peltier_store.registry.transactions import WriteTransaction


async def publish(
    writing: WriteTransaction, draft: Version, reservation: Reservation, alias: str | None
) -> tuple[Version, bool]:
    """Numbers the draft and makes it live, unless a live version has its bytes; then points the alias to it."""
    existing = await require_room(writing.connection, draft)
    await consume(writing.connection, reservation)
    version = existing or await _insert(writing, replace(draft, created_at=writing.at, created_by=writing.actor))
    if alias is not None:
        await set_alias(writing, version.tenant, version.name, alias, {version.number: 1.0})
    return version, existing is None


async def require_room(connection: AsyncConnection, draft: Version) -> Version | None:
    """Raises QuotaReached if the draft exceeds a quota; returns the live version that already has its bytes."""
    quotas = await require_quotas(connection, draft.tenant)
    existing = await find_live_bytes(connection, draft.tenant, draft.name, draft.digest)
    if existing is None:
        await require_room_for_adapter(connection, quotas, draft.tenant, draft.name)
        await require_room_for_bytes(connection, quotas, draft)
    return existing


async def _insert(writing: WriteTransaction, draft: Version) -> Version:
    adapter_id, number = await _next_number(writing, draft)
    row = (
        insert(VersionRow)
        .inline()
        .values(
            adapter_id=adapter_id,
            number=number,
            digest=draft.digest,
            size_bytes=draft.size_bytes,
            preset=draft.preset,
            manifest=draft.manifest,
            created_at=draft.created_at,
            created_by=draft.created_by,
            revision=writing.revision,
        )
    )
    await writing.connection.execute(row)
    await writing.audit(draft.tenant, "publish", f"{draft.name}@{number}", digest=draft.digest)
    return replace(draft, number=number)


async def _next_number(writing: WriteTransaction, draft: Version) -> tuple[int, int]:
    # Writers are serialised, so no other one inserts the row in between.
    result = AdapterRow.id, AdapterRow.last_number
    counted = update(AdapterRow).where(AdapterRow.tenant == draft.tenant, AdapterRow.name == draft.name)
    counted = counted.values(last_number=AdapterRow.last_number + 1, revision=writing.revision)
    row = (await writing.connection.execute(counted.returning(*result))).one_or_none()
    if row is None:
        first = insert(AdapterRow).values(
            tenant=draft.tenant, name=draft.name, last_number=1, is_public=False, revision=writing.revision
        )
        row = (await writing.connection.execute(first.returning(*result))).one()
    return row.id, row.last_number
