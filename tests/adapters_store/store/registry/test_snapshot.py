"""Reading the registry by snapshots gives the same state as reading all of it, under concurrent writes."""

import asyncio
from dataclasses import replace

from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.records import AdapterRecord, Key, Position, Quotas, RegistrySnapshot, TenantRecord

from tests.adapters_store.store.conftest import opened
from tests.adapters_store.store.registry.conftest import publish


class RegistryCopy:
    """The state that a replica keeps in memory."""

    def __init__(self) -> None:
        self.position: Position | None = None
        self.adapters: dict[tuple[str, str], AdapterRecord] = {}
        self.tenants: dict[str, TenantRecord] = {}
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


async def test_a_snapshot_has_what_changed_and_nothing_else(registry: Registry) -> None:
    """It has whole adapters, tenants and keys, and is empty if nothing has changed."""
    follower = RegistryCopy()
    await follower.follow(registry)
    await publish(registry, b"one", name="a")
    await publish(registry, b"one", name="b")
    snapshot = await follower.follow(registry)
    assert ([adapter.name for adapter in snapshot.adapters], snapshot.tenants) == (["a", "b"], ())
    await registry.set_alias("acme", "b", "production", {1: 1.0}, actor="ann")
    await registry.create_key("zenith", prefix="abcd1234", digest="00", scopes={"predict"}, actor="ann")
    await registry.update_tenant("acme", Quotas(max_adapters=5), actor="ann")
    snapshot = await follower.follow(registry)
    assert [(adapter.name, len(adapter.versions), len(adapter.aliases)) for adapter in snapshot.adapters] == [
        ("b", 1, 1)
    ]
    assert [tenant.name for tenant in snapshot.tenants] == ["acme"]
    assert [(key.tenant, key.prefix) for key in snapshot.keys] == [("zenith", "abcd1234")]
    await registry.create_key("zenith", prefix="wxyz1234", digest="00", scopes={"predict"}, actor="ann")
    snapshot = await follower.follow(registry)
    assert (snapshot.tenants, [key.prefix for key in snapshot.keys]) == ((), ["wxyz1234"])
    await registry.revoke_key("abcd1234", actor="ann")
    assert [key.prefix for key in (await follower.follow(registry)).keys] == ["abcd1234"]
    assert await follower.follow(registry) == RegistrySnapshot(await registry.position(), (), ())


async def test_every_kind_of_change_is_followed(registry: Registry) -> None:
    """After each change a replica's state equals a fresh read; deleted versions are marked."""
    follower = RegistryCopy()
    await publish(registry, b"one")
    await publish(registry, b"two")
    changes = (
        lambda: registry.set_alias("acme", "sst2", "production", {1: 0.5, 2: 0.5}, actor="ann"),
        lambda: registry.set_alias("acme", "sst2", "production", {2: 1.0}, actor="ann"),
        lambda: registry.rollback_alias("acme", "sst2", "production", actor="ann"),
        lambda: registry.delete_alias("acme", "sst2", "production", actor="ann"),
        lambda: registry.deprecate("acme", "sst2", 1, "old", actor="ann"),
        lambda: registry.set_public("acme", "sst2", True, actor="ann"),
        lambda: registry.delete_version("acme", "sst2", 1, actor="ann"),
        lambda: registry.undelete("acme", "sst2", 1, actor="ann"),
        lambda: registry.delete_adapter("acme", "sst2", actor="ann"),
        lambda: registry.create_tenant("umbra", actor="ann"),
        lambda: registry.update_tenant("umbra", Quotas(max_adapters=1), actor="ann"),
        lambda: registry.create_key("umbra", prefix="abcd1234", digest="0", scopes={"admin"}, actor="ann"),
        lambda: registry.revoke_key("abcd1234", actor="ann"),
    )
    for change in changes:
        before = await registry.position()
        await change()
        assert (await registry.position()).revision > before.revision
        snapshot = await follower.follow(registry)
        assert len(snapshot.adapters) + len(snapshot.tenants) + len(snapshot.keys) > 0
        assert await follower.knows_all(registry)
    assert all(version.deleted_at for version in follower.adapters["acme", "sst2"].versions)


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
