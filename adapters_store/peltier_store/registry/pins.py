"""Pins: adapters that every replica keeps on its device."""

from sqlalchemy import Connection, Row, select, update

from peltier_store.registry.lookup import require_adapter
from peltier_store.registry.records import Pin
from peltier_store.registry.tables import AdapterRow
from peltier_store.registry.transactions import WriteTransaction


def set_pin(writing: WriteTransaction, tenant: str, name: str) -> Pin:
    """Pins the adapter; a pin that is there already stays as it is."""
    adapter_id = require_adapter(writing.connection, tenant, name)
    former = _find(writing.connection, adapter_id)
    if former is not None:
        return former
    pin = Pin(writing.at, writing.actor)
    _write(writing, adapter_id, pin)
    writing.audit(tenant, "pin", name)
    return pin


def release_pin(writing: WriteTransaction, tenant: str, name: str) -> None:
    """Removes the pin of an adapter, if it has one."""
    adapter_id = require_adapter(writing.connection, tenant, name)
    if _find(writing.connection, adapter_id) is not None:
        _write(writing, adapter_id, None)
        writing.audit(tenant, "unpin", name)


def pin_of(row: Row[*tuple[object, ...]]) -> Pin | None:
    """The pin in a row of `adapters`."""
    return None if row.pinned_at is None else Pin(row.pinned_at, row.pinned_by)


def _find(connection: Connection, adapter_id: int) -> Pin | None:
    return pin_of(connection.execute(select(AdapterRow.__table__).where(AdapterRow.id == adapter_id)).one())


def _write(writing: WriteTransaction, adapter_id: int, pin: Pin | None) -> None:
    at, by = (None, None) if pin is None else (pin.pinned_at, pin.pinned_by)
    changed = update(AdapterRow).where(AdapterRow.id == adapter_id)
    writing.connection.execute(changed.values(pinned_at=at, pinned_by=by, revision=writing.revision))
