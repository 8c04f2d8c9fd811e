"""Reading the registry by snapshots gives the same state as reading all of it, under concurrent writes."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from peltier_client.protocol.administration import TenantInfo, TenantQuotas
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.records import AdapterRecord, Key, Position, RegistrySnapshot

from tests.adapters_store.store.conftest import opened
from tests.adapters_store.store.registry.conftest import publish


class RegistryCopy:
    """The state that a replica keeps in memory."""

    def __init__(self) -> None:
        self.position: Position | None = None
        self.adapters: dict[tuple[str, str], AdapterRecord] = {}
        self.tenants: dict[str, TenantInfo] = {}
        self.keys: dict[str, Key] = {}

    async def follow(self, registry: Registry) -> RegistrySnapshot:
        snapshot = await registry.snapshot(self.position)
        self.position = snapshot.position
        self.adapters |= {(adapter.tenant, adapter.name): self._whole(adapter) for adapter in snapshot.adapters}
        self.tenants |= {tenant.name: tenant for tenant in snapshot.tenants}
        self.keys |= {key.prefix: key for key in snapshot.keys}
        return snapshot

    def _whole(self, adapter: AdapterRecord) -> AdapterRecord:
        """With the manifests that were read before, of live versions."""
        before = self.adapters.get((adapter.tenant, adapter.name))
        known = {version.number: version.manifest for version in before.versions} if before is not None else {}
        versions = (
            replace(version, manifest=version.manifest or known[version.number] if version.deleted_at is None else "")
            for version in adapter.versions
        )
        return replace(adapter, versions=tuple(versions))

    async def knows_all(self, registry: Registry) -> bool:
        other = RegistryCopy()
        await other.follow(registry)
        return vars(self) == vars(other)


async def test_every_change_is_followed_and_in_the_log(registry):
    """A snapshot has what has changed and nothing else: with it a replica's state equals a fresh read, in which deleted
    versions are marked. The change has one entry, with its actor and its subject."""
    follower = RegistryCopy()
    await publish(registry, b"one")
    await publish(registry, b"two")
    await follower.follow(registry)
    mine, live = ("acme", "sst2"), ("acme", "sst2", "live")
    key = {"prefix": "abcd1234", "digest": "00ff", "scopes": {"admin"}}
    changes = (
        ("set_alias", "sst2@live", lambda: registry.set_alias(*live, {1: 0.5, 2: 0.5}, actor="ann")),
        ("set_alias", "sst2@live", lambda: registry.set_alias(*live, {2: 1.0}, actor="bob")),
        ("rollback_alias", "sst2@live", lambda: registry.rollback_alias(*live, actor="ann")),
        ("delete_alias", "sst2@live", lambda: registry.delete_alias(*live, actor="bob")),
        ("deprecate", "sst2@1", lambda: registry.deprecate(*mine, 1, "old", actor="ann")),
        ("set_public", "sst2", lambda: registry.set_public(*mine, True, actor="bob")),
        ("delete_version", "sst2@1", lambda: registry.delete_version(*mine, 1, actor="ann")),
        ("undelete", "sst2@1", lambda: registry.undelete(*mine, 1, actor="bob")),
        ("pin", "sst2", lambda: registry.pin(*mine, actor="ann")),
        ("unpin", "sst2", lambda: registry.unpin(*mine, actor="bob")),
        ("delete_adapter", "sst2", lambda: registry.delete_adapter(*mine, actor="ann")),
        ("create_tenant", "umbra", lambda: registry.create_tenant("umbra", actor="bob")),
        ("update_tenant", "umbra", lambda: registry.update_tenant("umbra", TenantQuotas(max_adapters=2), actor="ann")),
        ("create_key", "abcd1234", lambda: registry.create_key("umbra", **key, actor="bob")),
        ("revoke_key", "abcd1234", lambda: registry.revoke_key("abcd1234", actor="ann")),
        ("purge", "sst2", lambda: registry.purge(timedelta(seconds=-1), actor="bob")),
    )
    for number, (action, subject, change) in enumerate(changes):
        seen, before = await registry.position(), await registry.audit()
        await change()
        assert (await registry.position()).revision == seen.revision + 1
        snapshot = await follower.follow(registry)
        assert len(snapshot.adapters) + len(snapshot.tenants) + len(snapshot.keys) == 1
        assert await follower.knows_all(registry)
        entry, *others = await registry.audit()
        assert (entry.actor, entry.action, entry.subject) == (("ann", "bob")[number % 2], action, subject)
        assert others == before
        assert "00ff" not in str(entry)
        if action == "delete_adapter":
            assert all(version.deleted_at for version in follower.adapters["acme", "sst2"].versions)
    assert await follower.follow(registry) == RegistrySnapshot(await registry.position(), (), ())
    details = {entry.action: entry.detail for entry in await registry.audit()}
    assert details["rollback_alias"] == {"split": {"1": 0.5, "2": 0.5}}
    assert details["update_tenant"]["max_adapters"] == 2


async def test_manifests_are_read_once_and_only_of_what_is_live(registry: Registry) -> None:
    """After a change of an adapter a snapshot has only the manifests of its new versions."""
    for data in (b"one", b"two"):
        await publish(registry, data)
    await registry.delete_version("acme", "sst2", 1, actor="ann")

    async def change() -> list[bool]:
        seen = await registry.position()
        await registry.deprecate("acme", "sst2", 2, "old", actor="ann")
        return has_manifest(await registry.snapshot(seen))

    def has_manifest(snapshot: RegistrySnapshot) -> list[bool]:
        return [version.manifest != "" for version in snapshot.adapters[0].versions]

    assert has_manifest(await registry.snapshot()) == [False, True]
    assert await change() == [False, False]
    seen = await registry.position()
    await publish(registry, b"three")
    assert has_manifest(await registry.snapshot(seen)) == [False, False, True]
    await registry.undelete("acme", "sst2", 1, actor="ann")
    assert has_manifest(await registry.snapshot(seen)) == [True, False, True]
    assert await change() == [False, False, False]


async def test_no_change_is_missed_while_many_write(registry: Registry, url: str) -> None:
    """Two replicas write as fast as they can while a third follows: its state is complete at every revision."""
    follower, changing, done = RegistryCopy(), asyncio.Event(), False

    async def write(replica: Registry, writer: int) -> None:
        for number in range(10):
            name = f"a{number % 3}"
            changing.set()
            version, _ = await publish(replica, b"%d %d" % (writer, number), name=name)
            changing.set()
            await replica.set_alias("acme", name, "production", {version.number: 1.0}, actor="ann")

    async def follow() -> None:
        while not done:
            await changing.wait()
            changing.clear()
            seen = await follower.follow(registry)
            # A replica may rely on what it has: whatever is named is there, and revisions never go back.
            for adapter in seen.adapters:
                named = {number for alias in adapter.aliases for number in alias.split}
                assert named <= {version.number for version in adapter.versions}

    following = asyncio.create_task(follow())
    async with opened(url) as one, opened(url) as other:
        await asyncio.gather(*(write(replica, number) for number, replica in enumerate([one, other] * 2)))
    done = True
    changing.set()
    await following
    await follower.follow(registry)
    assert await follower.knows_all(registry)
    assert sum(len(adapter.versions) for adapter in follower.adapters.values()) == 40
