"""Pins of adapters, on both databases."""

import pytest
from peltier_store.registry import AdapterUnknown, InvalidRecord, Pin, QuotaReached, Quotas, Registry

from tests.adapters_store.store.registry.conftest import publish


async def _pin_of(registry: Registry, name: str = "sst2") -> Pin | None:
    (record,) = [one for one in (await registry.snapshot()).adapters if (one.tenant, one.name) == ("acme", name)]
    return record.pin


async def test_a_pin_is_part_of_its_adapter(registry: Registry) -> None:
    """Replicas read it with the adapter, with its tier, its time and its actor; a release removes it."""
    await publish(registry, b"1")
    since = await registry.position()
    made = await registry.pin("acme", "sst2", "device", actor="ann")
    (changed,) = (await registry.snapshot(since)).adapters
    assert changed.pin == made == Pin("device", made.pinned_at, "ann")
    assert await registry.pin("acme", "sst2", "device", actor="bob") == made
    assert (await registry.pin("acme", "sst2", "host", actor="bob")).pinned_by == "bob"
    for _ in range(2):
        await registry.unpin("acme", "sst2", actor="bob")
    assert await _pin_of(registry) is None
    log = [(entry.action, entry.actor, entry.detail) for entry in await registry.audit() if "pin" in entry.action]
    assert log == [("unpin", "bob", {}), ("pin", "bob", {"tier": "host"}), ("pin", "ann", {"tier": "device"})]


async def test_pins_have_a_quota(registry: Registry) -> None:
    """One more is refused, as its check says before; the tier of a pin may still change, and a release makes room."""
    await registry.update_tenant("acme", Quotas(max_pinned_adapters=1), actor="operator")
    for name in ("sst2", "nli"):
        await publish(registry, name.encode(), name=name)
    await registry.pin("acme", "sst2", "device", actor="ann")
    message = r"^tenant 'acme' has pinned 1 adapters and may pin 1; release one first$"
    with pytest.raises(QuotaReached, match=message):
        await registry.require_room_for_pin("acme", "nli")
    with pytest.raises(QuotaReached, match=message):
        await registry.pin("acme", "nli", "host", actor="ann")
    await registry.require_room_for_pin("acme", "sst2")
    await registry.pin("acme", "sst2", "host", actor="ann")
    assert (await registry.usage("acme")).num_pinned == 1
    await registry.unpin("acme", "sst2", actor="ann")
    await registry.pin("acme", "nli", "host", actor="ann")


async def test_a_pin_ends_with_its_adapter(registry: Registry) -> None:
    """The deletion of the last version releases it, and an undeletion does not pin again."""
    await publish(registry, b"1")
    await registry.pin("acme", "sst2", "device", actor="ann")
    await registry.delete_adapter("acme", "sst2", actor="ann")
    await registry.undelete("acme", "sst2", 1, actor="ann")
    assert await _pin_of(registry) is None


async def test_only_live_adapters_are_pinned_to_a_tier_of_memory(registry: Registry) -> None:
    """Other names and tiers are refused."""
    with pytest.raises(AdapterUnknown):
        await registry.pin("acme", "sst2", "device", actor="ann")
    await publish(registry, b"1")
    with pytest.raises(InvalidRecord, match=r"^the tier 'store' is invalid: an adapter is pinned to device or host$"):
        await registry.pin("acme", "sst2", "store", actor="ann")
