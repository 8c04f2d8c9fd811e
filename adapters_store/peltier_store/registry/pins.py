"""Pins: adapters that every replica keeps in memory."""

from sqlalchemy import Connection, Row, select, update

from peltier_store.registry.errors import InvalidRecord
from peltier_store.registry.lookup import require_adapter
from peltier_store.registry.records import PINNED_TIERS, Pin
from peltier_store.registry.tables import AdapterRow
from peltier_store.registry.tenants import require_quotas, require_room_for_pin
from peltier_store.registry.transactions import WriteTransaction


def set_pin(writing: WriteTransaction, tenant: str, name: str, tier: str) -> Pin:
    """Pins the adapter, or moves its pin to another tier; a pin that is there already stays as it is."""
    if tier not in PINNED_TIERS:
        raise InvalidRecord(f"the tier {tier!r} is invalid: an adapter is pinned to {' or '.join(PINNED_TIERS)}")
    adapter_id = require_adapter(writing.connection, tenant, name)
    former = _find(writing.connection, adapter_id)
    if former is not None and former.tier == tier:
        return former
    if former is None:
        require_room_for_pin(writing.connection, require_quotas(writing.connection, tenant), tenant)
    pin = Pin(tier, writing.at, writing.actor)
    _write(writing, adapter_id, pin)
    writing.audit(tenant, "pin", name, tier=tier)
    return pin


def release_pin(writing: WriteTransaction, tenant: str, name: str) -> None:
    """Removes the pin of an adapter, if it has one."""
    adapter_id = require_adapter(writing.connection, tenant, name)
    if _find(writing.connection, adapter_id) is not None:
        _write(writing, adapter_id, None)
        writing.audit(tenant, "unpin", name)


def require_room(connection: Connection, tenant: str, name: str) -> None:
    """Raises AdapterUnknown, or QuotaReached if `set_pin` would refuse the adapter now."""
    if _find(connection, require_adapter(connection, tenant, name)) is None:
        require_room_for_pin(connection, require_quotas(connection, tenant), tenant)


def pin_of(row: Row[*tuple[object, ...]]) -> Pin | None:
    """The pin in a row of `adapters`."""
    return None if row.pinned_tier is None else Pin(row.pinned_tier, row.pinned_at, row.pinned_by)


def _find(connection: Connection, adapter_id: int) -> Pin | None:
    return pin_of(connection.execute(select(AdapterRow.__table__).where(AdapterRow.id == adapter_id)).one())


def _write(writing: WriteTransaction, adapter_id: int, pin: Pin | None) -> None:
    tier, at, by = (None, None, None) if pin is None else (pin.tier, pin.pinned_at, pin.pinned_by)
    changed = update(AdapterRow).where(AdapterRow.id == adapter_id)
    writing.connection.execute(changed.values(pinned_tier=tier, pinned_at=at, pinned_by=by, revision=writing.revision))
