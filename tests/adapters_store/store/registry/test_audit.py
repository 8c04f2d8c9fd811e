"""The audit log has every change that happened, and no other."""

from datetime import UTC, datetime, timedelta

import pytest
from peltier_store.registry import AuditFilter, Quotas, Registry, RegistryConflict

from tests.adapters_store.store.registry.conftest import publish


async def test_every_change_is_in_the_log(registry: Registry) -> None:
    """One entry a change, in the order of the changes, with who did it and to what."""
    await registry.create_tenant("umbra", actor="operator")
    await registry.update_tenant("umbra", Quotas(max_adapters=2), actor="operator")
    await registry.create_key("umbra", prefix="abcd1234", digest="00ff", scopes={"publish"}, actor="operator")
    await publish(registry, b"one", tenant="umbra")
    await registry.set_alias("umbra", "sst2", "production", {1: 1.0}, actor="bob")
    await registry.delete_alias("umbra", "sst2", "production", actor="bob")
    await registry.rollback_alias("umbra", "sst2", "production", actor="bob")
    await registry.delete_alias("umbra", "sst2", "production", actor="bob")
    await registry.deprecate("umbra", "sst2", 1, "old", actor="bob")
    await registry.set_public("umbra", "sst2", True, actor="bob")
    await registry.delete_version("umbra", "sst2", 1, actor="bob")
    await registry.undelete("umbra", "sst2", 1, actor="bob")
    await registry.delete_adapter("umbra", "sst2", actor="bob")
    await registry.purge(datetime.now(UTC) + timedelta(seconds=1), actor="gc")
    await registry.revoke_key("abcd1234", actor="operator")
    entries = list(reversed(await registry.audit(AuditFilter(tenant="umbra"))))
    assert [(entry.actor, entry.action, entry.subject) for entry in entries] == [
        ("operator", "create_tenant", "umbra"),
        ("operator", "update_tenant", "umbra"),
        ("operator", "create_key", "abcd1234"),
        ("ann", "publish", "sst2@1"),
        ("bob", "set_alias", "sst2@production"),
        ("bob", "delete_alias", "sst2@production"),
        ("bob", "rollback_alias", "sst2@production"),
        ("bob", "delete_alias", "sst2@production"),
        ("bob", "deprecate", "sst2@1"),
        ("bob", "set_public", "sst2"),
        ("bob", "delete_version", "sst2@1"),
        ("bob", "undelete", "sst2@1"),
        ("bob", "delete_adapter", "sst2"),
        ("gc", "purge", "sst2"),
        ("operator", "revoke_key", "abcd1234"),
    ]
    assert entries[1].detail["max_adapters"] == 2
    assert entries[6].detail == {"split": {"1": 1.0}}
    assert "00ff" not in str(entries)


async def test_what_did_not_happen_is_not_in_the_log(registry: Registry) -> None:
    """Neither what was refused, nor what changed nothing."""
    await publish(registry, b"one")
    before = await registry.audit()
    await publish(registry, b"one")
    await registry.undelete("acme", "sst2", 1, actor="ann")
    with pytest.raises(RegistryConflict):
        await registry.create_tenant("acme", actor="operator")
    assert await registry.audit() == before


async def test_the_log_is_read_page_by_page(registry: Registry) -> None:
    """Newest first, from where the page before ended, of all tenants or of one."""
    for number in range(5):
        await publish(registry, b"%d" % number, tenant=("acme", "zenith")[number % 2])
    everything = await registry.audit()
    assert [entry.id for entry in everything] == sorted((entry.id for entry in everything), reverse=True)
    pages = [await registry.audit(limit=3)]
    while len(pages[-1]) == 3:
        pages.append(await registry.audit(limit=3, before_id=pages[-1][-1].id))
    assert [entry for page in pages for entry in page] == everything
    assert [entry.subject for entry in await registry.audit(AuditFilter(tenant="zenith"), limit=2)] == [
        "sst2@2",
        "sst2@1",
    ]
