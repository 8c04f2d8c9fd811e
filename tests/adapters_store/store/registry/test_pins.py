"""Pins of adapters, on both databases."""

import pytest
from peltier_store.registry.errors import AdapterUnknown
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.records import Pin

from tests.adapters_store.store.registry.conftest import publish


async def _pin_of(registry: Registry, name: str = "sst2") -> Pin | None:
    (record,) = [one for one in (await registry.snapshot()).adapters if (one.tenant, one.name) == ("acme", name)]
    return record.pin


async def test_a_pin_is_part_of_its_adapter(registry: Registry) -> None:
    """Replicas read it with the adapter, its time and its actor; a second pin changes nothing, a release removes it."""
    await publish(registry, b"1")
    since = await registry.position()
    made = await registry.pin("acme", "sst2", actor="ann")
    (changed,) = (await registry.snapshot(since)).adapters
    assert changed.pin == made == Pin(made.pinned_at, "ann")
    assert await registry.pin("acme", "sst2", actor="bob") == made
    for _ in range(2):
        await registry.unpin("acme", "sst2", actor="bob")
    assert await _pin_of(registry) is None
    log = [(entry.action, entry.actor, entry.detail) for entry in await registry.audit() if "pin" in entry.action]
    assert log == [("unpin", "bob", {}), ("pin", "ann", {})]


async def test_a_pin_ends_with_its_adapter(registry: Registry) -> None:
    """The deletion of the last version releases it, and an undeletion does not pin again."""
    await publish(registry, b"1")
    await registry.pin("acme", "sst2", actor="ann")
    await registry.delete_adapter("acme", "sst2", actor="ann")
    await registry.undelete("acme", "sst2", 1, actor="ann")
    assert await _pin_of(registry) is None


async def test_only_live_adapters_are_pinned(registry: Registry) -> None:
    """Other names are refused."""
    with pytest.raises(AdapterUnknown):
        await registry.pin("acme", "sst2", actor="ann")
