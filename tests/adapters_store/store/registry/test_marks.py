"""Changes of a version or an adapter that make no new version."""

import pytest
from peltier_store.registry import AdapterUnknown, InvalidRecord, Registry, VersionUnknown

from tests.adapters_store.store.registry.conftest import publish


async def test_a_deprecated_version_is_live_and_says_why(registry: Registry) -> None:
    """The last reason counts, and no reason takes it back."""
    version, _ = await publish(registry, b"one")
    for reason in ("old data", "a bug"):
        deprecated = await registry.deprecate("acme", "sst2", 1, reason, actor="ann")
        assert (deprecated.deprecation, deprecated.deprecated_at is None) == (reason, False)
        assert await registry.versions() == [deprecated]
    assert await registry.deprecate("acme", "sst2", 1, None, actor="ann") == version
    assert await registry.versions() == [version]


async def test_only_what_is_live_is_marked(registry: Registry) -> None:
    """A deleted version cannot be advised against, and a deleted adapter not be opened."""
    await publish(registry, b"one")
    await publish(registry, b"two")
    await registry.delete_version("acme", "sst2", 1, actor="ann")
    with pytest.raises(VersionUnknown):
        await registry.deprecate("acme", "sst2", 1, "old", actor="ann")
    await registry.delete_adapter("acme", "sst2", actor="ann")
    with pytest.raises(AdapterUnknown):
        await registry.set_public("acme", "sst2", True, actor="ann")


async def test_a_reason_is_text_that_can_be_kept(registry: Registry) -> None:
    """On either database."""
    await publish(registry, b"one")
    with pytest.raises(InvalidRecord, match="the reason"):
        await registry.deprecate("acme", "sst2", 1, "a\0b", actor="ann")
    assert (await registry.deprecate("acme", "sst2", 1, "naïve 🙂", actor="ann")).deprecation == "naïve 🙂"


async def test_an_adapter_is_private_until_it_is_opened(registry: Registry) -> None:
    """And again once it is closed."""
    await publish(registry, b"one")
    for public in (False, True, False):
        await registry.set_public("acme", "sst2", public, actor="ann")
        assert [adapter.is_public for adapter in (await registry.snapshot()).adapters] == [public]
