"""Keys: recorded once, revoked permanently."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from peltier_store.registry import InvalidRecord, Key, KeyUnknown, Registry, RegistryConflict, TenantUnknown


async def create_key(registry: Registry, tenant: str = "acme", prefix: str = "abcd1234", **given: Any) -> Key:
    values = {"digest": "00ff", "scopes": {"predict", "publish"}, "note": "Ann's", **given}
    return await registry.create_key(tenant, prefix=prefix, actor="operator", **values)


async def test_a_key_is_kept_as_given(registry: Registry) -> None:
    """It is listed with its tenant, in the order of creation; logs do not show its digest."""
    expires_at = datetime.now(UTC) + timedelta(days=1)
    first = await create_key(registry, expires_at=expires_at)
    second = await create_key(registry, "zenith", "wxyz1234", scopes={"admin"})
    assert (await registry.snapshot()).keys == (first, second)
    assert first.scopes == {"predict", "publish"}
    assert (first.tenant, first.note, first.created_by, first.expires_at) == ("acme", "Ann's", "operator", expires_at)
    assert "00ff" not in repr(first)


async def test_a_revoked_key_stays_revoked(registry: Registry) -> None:
    """A second revocation does not change the time of the first."""
    await create_key(registry)
    revoked = await registry.revoke_key("abcd1234", actor="operator")
    assert revoked.revoked_at is not None
    assert await registry.revoke_key("abcd1234", actor="operator") == revoked
    assert (await registry.snapshot()).keys == (revoked,)
    with pytest.raises(KeyUnknown, match=r"^no key has the prefix 'nobodys1'$"):
        await registry.revoke_key("nobodys1", actor="operator")


async def test_a_prefix_belongs_to_one_key(registry: Registry) -> None:
    """Another tenant cannot use it either, nor can it be reused after a revocation."""
    await create_key(registry)
    await registry.revoke_key("abcd1234", actor="operator")
    with pytest.raises(RegistryConflict, match=r"^a key with the prefix 'abcd1234' exists already$"):
        await create_key(registry, "zenith")


@pytest.mark.parametrize("scopes", [set(), {"root"}, {"predict", "Publish"}])
async def test_scopes_are_those_that_there_are(registry: Registry, scopes: set[str]) -> None:
    """A key has at least one scope, and only known scopes."""
    with pytest.raises(InvalidRecord, match=r"are invalid: give one or more of admin, metrics, predict, publish$"):
        await create_key(registry, scopes=scopes)


async def test_a_key_needs_its_tenant_and_text_that_can_be_kept(registry: Registry) -> None:
    """PostgreSQL cannot store zero bytes, and neither database can store lone surrogates."""
    with pytest.raises(TenantUnknown):
        await create_key(registry, "nobody")
    for note in ("a\0b", "a\ud800b"):
        with pytest.raises(InvalidRecord, match=r"^the note 'a.*b' contains a zero byte or a lone surrogate$"):
            await create_key(registry, note=note)
    assert (await registry.snapshot()).keys == ()
