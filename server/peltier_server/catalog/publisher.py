"""How versions come: checked, proven, stored, recorded, live."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.artifact.manifest import Manifest
from peltier_adapters.batch.row import RowOutput
from peltier_adapters.errors import ArtifactError
from peltier_adapters.golden.golden import golden_rows, judge_golden
from peltier_adapters.golden.twins import create_twin, num_twins
from peltier_adapters.residency.bank import Resident
from peltier_client.errors import ArtifactRefused, InferenceFailed
from peltier_client.protocol import check_alias, check_name
from peltier_store.blobs.blobs import Blobs
from peltier_store.registry import Registry, RegistryError, Version

from peltier_server.auth.caller import Caller
from peltier_server.catalog.catalog import Catalog
from peltier_server.catalog.entry import Entry
from peltier_server.catalog.sync import RegistrySync
from peltier_server.metrics.metrics import Metrics
from peltier_server.queue.batcher import Batcher
from peltier_server.queue.ticket import Terms
from peltier_server.residency.adapter_key import AdapterKey
from peltier_server.residency.loader import StoreLoader
from peltier_server.residency.slots import Slots


@dataclass(frozen=True)
class Store:
    """Where versions are kept: the bytes, the record of them, the record's image in memory, and what keeps it one.

    `is_bounded` says whether a tenant has quotas of what it may store."""

    blobs: Blobs
    registry: Registry
    catalog: Catalog
    sync: RegistrySync
    is_bounded: Callable[[str], bool]


@dataclass(frozen=True)
class Place:
    """Whose an upload becomes, under which name (None: its manifest's), and the alias that is to mean it at once."""

    owner: Caller
    name: str | None = None
    alias: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)
        if self.alias is not None:
            check_alias(self.alias)


class Publisher:
    """Makes artifacts live. What it has returned survives a crash."""

    def __init__(
        self,
        store: Store,
        loader: StoreLoader,
        slots: Slots[AdapterKey, Artifact, Resident],
        batcher: Batcher,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._loader = loader
        self._slots = slots
        self._batcher = batcher
        self._metrics = metrics

    async def publish(self, data: bytes, place: Place) -> tuple[Entry, bool]:
        """Makes `data` a version of an adapter; returns it, and whether it is new.

        Raises `ArtifactRefused` with every reason; then nothing is stored.
        """
        try:
            entry, created = await self._publish(data, place)
        except ArtifactError as error:
            self._metrics.uploads.labels("refused").inc()
            raise ArtifactRefused(f"the artifact is refused: {error}", error.reasons) from error
        self._metrics.uploads.labels("created" if created else "existing").inc()
        return entry, created

    async def _publish(self, data: bytes, place: Place) -> tuple[Entry, bool]:
        artifact = await self._loader.parse(data)
        place = replace(place, name=place.name or artifact.manifest.name)
        if self._store.is_bounded(place.owner.tenant):
            # The registry decides when it publishes; what it would refuse costs no room on device and disk before that,
            # and nobody else pays for asking.
            await self._store.registry.require_room(
                place.owner.tenant, place.name or "", digest=artifact.digest, size_bytes=len(data)
            )
        if not self._is_proven(artifact.digest, place):
            await self._prove(artifact, place.owner.tenant)
        # A caller who hangs up now must not leave bytes that are reserved and not recorded.
        version, created = await asyncio.shield(self._commit(artifact, data, place))
        return Entry.of(version, artifact.manifest), created

    def _is_proven(self, digest: str, place: Place) -> bool:
        published = self._store.catalog.find(place.owner.tenant, place.name or "")
        return published is not None and digest in {entry.digest for entry in published.entries.values()}

    async def _prove(self, artifact: Artifact, tenant: str) -> None:
        """Re-runs the golden examples as ordinary rows; an ArtifactError says how they differ."""
        owned = AdapterKey(tenant, artifact.digest)
        try:
            outputs = await self._run(artifact, owned)
            reasons = judge_golden(self._loader.backbone, artifact.manifest, outputs)
            if reasons:
                count = num_twins(self._loader.backbone)
                twins = [await self._run_twin(artifact, number, tenant) for number in range(count)]
                reasons = judge_golden(self._loader.backbone, artifact.manifest, outputs, twins)
            if reasons:
                raise ArtifactError(reasons)
        except InferenceFailed as error:
            self._forget(owned)
            raise ArtifactError([f"the golden examples cannot be run: {error}"]) from error
        except BaseException:
            self._forget(owned)
            raise

    async def _run(self, artifact: Artifact, owned: AdapterKey) -> list[RowOutput]:
        async with self._slots.lease(owned, owned.tenant, artifact) as lease:
            rows = await asyncio.to_thread(golden_rows, self._loader.backbone, artifact.manifest, lease.resident)
            return [outcome.output for outcome in await self._batcher.compute(rows, Terms(owned.tenant))]

    async def _run_twin(self, artifact: Artifact, number: int, tenant: str) -> list[RowOutput]:
        twin = await asyncio.to_thread(create_twin, artifact, number)
        owned = AdapterKey(tenant, twin.digest)
        try:
            return await self._run(twin, owned)
        finally:
            self._slots.retire(owned)

    async def _commit(self, artifact: Artifact, data: bytes, place: Place) -> tuple[Version, bool]:
        try:
            version, created = await self._record(artifact, data, place)
        except BaseException:
            self._forget(AdapterKey(place.owner.tenant, artifact.digest))
            raise
        await self._store.sync.sync_after_write()
        return version, created

    async def _record(self, artifact: Artifact, data: bytes, place: Place) -> tuple[Version, bool]:
        registry, owner, name = self._store.registry, place.owner, place.name or artifact.manifest.name
        manifest = await asyncio.to_thread(_text_of, artifact.manifest)
        reservation = await registry.reserve(artifact.digest)
        try:
            await self._store.blobs.put(data)
            return await registry.publish(
                owner.tenant,
                name,
                reservation,
                size_bytes=len(data),
                preset=artifact.manifest.preset,
                manifest=manifest,
                alias=place.alias,
                actor=owner.actor,
            )
        except BaseException:
            # It ends by itself, so a registry that does not answer must not hide why the upload failed.
            with suppress(RegistryError):
                await registry.release(reservation)
            raise

    def _forget(self, owned: AdapterKey) -> None:
        if not self._store.catalog.holds(owned):
            self._slots.retire(owned)


def _text_of(manifest: Manifest) -> str:
    # Not pydantic's own JSON, which would turn a metric that is NaN into null and then refuse it.
    return json.dumps(manifest.model_dump(mode="json"))
