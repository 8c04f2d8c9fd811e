"""Every kind of change that the registry can make, with what it needs before."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from peltier_client.protocol.administration import TenantQuotas
from peltier_client.protocol.rollouts import RolloutGuard
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry.errors import RegistryConflict
from peltier_store.registry.extensions.queue_records import BatchDraft, BatchPart, TrainingDraft
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.extensions.rollout_records import Judgement, Report, Retention, StoredAnswer

from tests.crash.replica import Write

TENANT, ACTOR = "default", "test"
NAMES = ("one", "two", "three")
_KEEP = Retention(timedelta(days=1), 10)


class Writes:
    """The changes by name. Each chooses what to change by the state of the registry, and may be refused by it."""

    def __init__(self, manifest: str) -> None:
        self._manifest = manifest
        self._count = 0

    @property
    def by_name(self) -> Mapping[str, Write]:
        """All of them, each method that has no underscore."""
        return {name: getattr(self, name) for name in vars(Writes) if not name.startswith("_") and name != "by_name"}

    async def publish(self, registry: Registry) -> None:
        for name in NAMES:
            await self._publish(registry, name)

    async def point_alias(self, registry: Registry) -> None:
        for name in NAMES:
            newest = max(one.number for one in await registry.versions() if one.name == name)
            await registry.set_alias(TENANT, name, "production", {newest: 1.0}, actor=ACTOR)

    async def roll_back_alias(self, registry: Registry) -> None:
        await self.publish(registry)
        await self.point_alias(registry)
        await registry.rollback_alias(TENANT, "one", "production", actor=ACTOR)

    async def delete_alias(self, registry: Registry) -> None:
        await self.point_alias(registry)
        await registry.delete_alias(TENANT, "two", "production", actor=ACTOR)

    async def delete_and_undelete(self, registry: Registry) -> None:
        number = await self._publish(registry, "three")
        await registry.delete_version(TENANT, "three", number, actor=ACTOR)
        await registry.undelete(TENANT, "three", number, actor=ACTOR)

    async def delete_adapter(self, registry: Registry) -> None:
        await self._publish(registry, "short")
        await registry.delete_adapter(TENANT, "short", actor=ACTOR)
        await registry.purge(datetime.now(UTC) + timedelta(days=1), actor=ACTOR)

    async def mark(self, registry: Registry) -> None:
        number = await self._publish(registry, "one")
        await registry.deprecate(TENANT, "one", number, "old", actor=ACTOR)
        await registry.set_public(TENANT, "one", True, actor=ACTOR)
        await registry.set_public(TENANT, "one", False, actor=ACTOR)

    async def pin(self, registry: Registry) -> None:
        await registry.pin(TENANT, "two", actor=ACTOR)
        await registry.unpin(TENANT, "two", actor=ACTOR)
        await registry.pin(TENANT, "one", actor=ACTOR)

    async def change_tenant(self, registry: Registry) -> None:
        await registry.create_tenant(self._new("tenant"), actor=ACTOR)
        await registry.update_tenant(TENANT, TenantQuotas(max_adapters=100 + self._count), actor=ACTOR)

    async def create_and_revoke_key(self, registry: Registry) -> None:
        prefixes = [self._new("key") for _ in range(2)]
        for prefix in prefixes:
            await registry.create_key(TENANT, prefix=prefix, digest=prefix, scopes=["predict"], actor=ACTOR)
        await registry.revoke_key(prefixes[0], actor=ACTOR)

    async def reserve_and_release(self, registry: Registry) -> None:
        await registry.release(await registry.reserve(digest_of(self._new("bytes").encode())))

    async def collect(self, registry: Registry) -> None:
        digest = digest_of(self._new("orphan").encode())
        await registry.begin_collection([digest])
        await registry.end_collection([digest])

    async def roll_out(self, registry: Registry) -> None:
        rollouts = registry.rollouts
        with suppress(RegistryConflict):
            await rollouts.stop(TENANT, "one", "production", actor=ACTOR)
        await self.point_alias(registry)
        candidate, request_id = await self._publish(registry, "one"), self._new("request")
        guard = RolloutGuard(share=0.5)
        rollout = (await rollouts.start(TENANT, "one", "production", candidate, guard, actor=ACTOR)).rollout
        answer = StoredAnswer(
            TENANT, request_id, 0, "one", rollout.id, candidate, "positive", None, "hash", datetime.now(UTC)
        )
        report = Report("replica", self._count, {rollout.id: {"candidate": {"answers": 1}}}, [answer])
        await rollouts.report(report, _KEEP)
        await rollouts.judge(TENANT, request_id, 0, Judgement("positive", None), _KEEP)
        await rollouts.stop(TENANT, "one", "production", actor=ACTOR)
        await rollouts.forget(timedelta(0))

    async def train(self, registry: Registry) -> None:
        training = await registry.trainings.create(
            TENANT, TrainingDraft("one", {}, await self._add_file(registry)), actor=ACTOR
        )
        await registry.trainings.pause(TENANT, training.id, actor=ACTOR)
        await registry.trainings.resume(TENANT, training.id, actor=ACTOR)
        if (claimed := await registry.trainings.claim("worker")) is not None:
            await registry.trainings.renew(claimed.id, "worker", state="running")
            await registry.trainings.release(claimed.id, "worker")
        await registry.trainings.cancel(TENANT, training.id, actor=ACTOR)
        await registry.trainings.remove(TENANT, training.id, actor=ACTOR)

    async def run_batch(self, registry: Registry) -> None:
        file_id = await self._add_file(registry, "batch")
        batch = await registry.batches.create(TENANT, BatchDraft("/v1/embeddings", file_id, "24h"), actor=ACTOR)
        if (claimed := await registry.batches.claim("replica")) is not None:
            await registry.batches.begin(claimed.id, "replica", num_lines=1)
        if (claimed := await registry.batches.claim("replica")) is not None:
            data = self._new("part").encode()
            reservation = await registry.reserve(digest_of(data))
            part = BatchPart(0, reservation.digest, len(data), 1, 0)
            await registry.batches.add_part(claimed.id, "replica", reservation, part)
        await registry.batches.cancel(TENANT, batch.id, actor=ACTOR)
        if (claimed := await registry.batches.claim("replica")) is not None:
            await registry.batches.renew(claimed.id, "replica")
            await registry.batches.finish(claimed.id, "replica", "cancelled")
        await registry.files.remove(TENANT, file_id, actor=ACTOR)

    def _new(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"

    async def _publish(self, registry: Registry, name: str) -> int:
        reservation = await registry.reserve(digest_of(self._new(name).encode()))
        version, _ = await registry.publish(
            TENANT, name, reservation, size_bytes=1, preset="bitfit", manifest=self._manifest, actor=ACTOR
        )
        return version.number

    async def _add_file(self, registry: Registry, purpose: str = "fine-tune") -> str:
        reservation = await registry.reserve(digest_of(self._new("file").encode()))
        file = await registry.files.add(
            TENANT,
            reservation,
            name="rows.jsonl",
            purpose=purpose,
            size_bytes=1,
            num_rows=1,
            is_inline=False,
            actor=ACTOR,
        )
        return file.id
