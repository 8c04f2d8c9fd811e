"""How versions come and go: checked, proven, stored, recorded, live; deleted ones keep their bytes for a while."""

import asyncio
import json
from dataclasses import dataclass

from peltier_adapters.artifact import Artifact
from peltier_adapters.bank import Resident
from peltier_adapters.blobs import Blobs
from peltier_adapters.errors import ArtifactError
from peltier_adapters.golden import golden_rows, judge_golden
from peltier_adapters.registry import Registry
from peltier_client.errors import ArtifactRefused, InferenceFailed
from peltier_client.protocol import check_name

from peltier_server.batcher import Batcher
from peltier_server.caller import TENANT
from peltier_server.catalog import Catalog, Entry
from peltier_server.loader import StoreLoader
from peltier_server.metrics import Metrics
from peltier_server.slots import Slots

# Who acts is known once callers have keys of their own.
_ACTOR = "admin"


@dataclass(frozen=True)
class Store:
    """Where versions are kept: the bytes, the record of them, and the record's image in memory."""

    blobs: Blobs
    registry: Registry
    catalog: Catalog


class Publisher:
    """Makes artifacts live and takes them back. What a method has returned from survives a crash."""

    def __init__(
        self,
        store: Store,
        loader: StoreLoader,
        slots: Slots[Artifact, Resident],
        batcher: Batcher,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._loader = loader
        self._slots = slots
        self._batcher = batcher
        self._metrics = metrics
        # The catalog follows the registry in its order.
        self._turn = asyncio.Lock()

    async def publish(self, data: bytes, name: str | None = None) -> tuple[Entry, bool]:
        """Makes `data` a version of `name` (of the manifest's name without it); returns it, and whether it is new.

        Raises `ArtifactRefused` with every reason; then nothing is stored.
        """
        try:
            entry, created = await self._publish(data, name)
        except ArtifactError as error:
            self._metrics.uploads.labels("refused").inc()
            raise ArtifactRefused(f"the artifact is refused: {error}", error.reasons) from error
        self._metrics.uploads.labels("created" if created else "existing").inc()
        return entry, created

    async def withdraw(self, name: str, number: int | None = None) -> None:
        """Deletes one version, or all; rows in flight still finish. Raises `NotFound` where there is none."""
        await asyncio.shield(self._withdraw(name, number))

    async def _publish(self, data: bytes, name: str | None) -> tuple[Entry, bool]:
        if name is not None:
            check_name(name)
        artifact = await self._loader.parse(data)
        name = name or artifact.manifest.name
        existing = self._store.catalog.find(name, artifact.digest)
        if existing is not None:
            return existing, False
        await self._prove(artifact)
        # A caller who hangs up now must not leave a version that is recorded and not in the catalog.
        return await asyncio.shield(self._commit(artifact, data, name))

    async def _prove(self, artifact: Artifact) -> None:
        """Re-runs the golden examples as ordinary rows; an ArtifactError says how they differ."""
        try:
            async with self._slots.lease(artifact.digest, artifact) as lease:
                rows = await asyncio.to_thread(golden_rows, self._loader.backbone, lease.resident)
                outputs = [outcome.output for outcome in await self._batcher.compute(rows)]
                reasons = judge_golden(self._loader.backbone, artifact.manifest, outputs)
                if reasons:
                    raise ArtifactError(reasons)
        except InferenceFailed as error:
            self._forget(artifact.digest)
            raise ArtifactError([f"the golden examples cannot be run: {error}"]) from error
        except BaseException:
            self._forget(artifact.digest)
            raise

    async def _commit(self, artifact: Artifact, data: bytes, name: str) -> tuple[Entry, bool]:
        async with self._turn:
            reservation = await self._store.registry.reserve(artifact.digest)
            try:
                await self._store.blobs.put(data)
                version, created = await self._store.registry.publish(
                    TENANT,
                    name,
                    reservation,
                    size_bytes=len(data),
                    preset=artifact.manifest.preset,
                    # Not pydantic's own JSON, which would turn a metric that is NaN into null and then refuse it.
                    manifest=json.dumps(artifact.manifest.model_dump(mode="json")),
                    actor=_ACTOR,
                )
            except BaseException:
                await self._store.registry.release(reservation)
                raise
            entry = Entry(version, artifact.manifest)
            self._store.catalog.add(entry)
        return entry, created

    async def _withdraw(self, name: str, number: int | None) -> None:
        catalog, registry = self._store.catalog, self._store.registry
        async with self._turn:
            entries = catalog.versions(name) if number is None else [catalog.version(name, number)]
            if number is None:
                await registry.delete_adapter(TENANT, name, actor=_ACTOR)
            else:
                await registry.delete_version(TENANT, name, number, actor=_ACTOR)
            for entry in entries:
                catalog.remove(name, entry.version.number)
            for digest in {entry.digest for entry in entries}:
                self._forget(digest)

    def _forget(self, digest: str) -> None:
        if not self._store.catalog.holds(digest):
            self._slots.retire(digest)
