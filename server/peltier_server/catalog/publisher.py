"""Publishes uploads: checks the artifact and its training report, runs its golden examples, stores and records it."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.artifact.manifest import Manifest
from peltier_adapters.batch.row import RowOutput
from peltier_adapters.errors import ArtifactError, sentences
from peltier_adapters.golden.golden import golden_rows, is_rounded, judge_golden, keep_recorded
from peltier_adapters.golden.identity import SubstituteProof
from peltier_client.errors import ArtifactRefused, InferenceFailed, InvalidInput
from peltier_client.protocol.names import check_alias, check_name
from peltier_client.protocol.reports import MAX_REPORT_BYTES, TrainingReport
from peltier_store.blobs.blobs import Blobs
from peltier_store.registry.errors import RegistryError
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.records import VersionRecord
from peltier_store.registry.registry import OnPublish
from pydantic import ValidationError

from peltier_server.auth.keyring import Caller
from peltier_server.catalog.catalog import Catalog
from peltier_server.catalog.published import Entry
from peltier_server.catalog.sync import RegistrySync
from peltier_server.context import AdapterKey
from peltier_server.metrics.metrics import Metrics
from peltier_server.queue.batcher import Batcher
from peltier_server.queue.ticket import Terms
from peltier_server.residency.loader import StoreLoader
from peltier_server.residency.slots import Slots


@dataclass(frozen=True)
class Store:
    """The storage of versions: their bytes, their registry, its copy in memory, and the task that updates the copy.

    `is_bounded` says whether a tenant has quotas of storage."""

    blobs: Blobs
    registry: Registry
    catalog: Catalog
    sync: RegistrySync
    is_bounded: Callable[[str], bool]


@dataclass(frozen=True)
class UploadTarget:
    """The owner of an upload, its name (None is the manifest's), an alias that names it from then on, and what else is
    done in the transaction that publishes it."""

    owner: Caller
    name: str | None = None
    alias: str | None = None
    then: OnPublish | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)
        if self.alias is not None:
            check_alias(self.alias)


class Publisher:
    """Publishes artifacts. A returned version survives a crash."""

    def __init__(
        self,
        store: Store,
        loader: StoreLoader,
        slots: Slots,
        batcher: Batcher,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._loader = loader
        self._slots = slots
        self._batcher = batcher
        self._metrics = metrics
        self._substitute = SubstituteProof(loader.backbone)

    async def publish(self, data: bytes, target: UploadTarget, report: bytes | None = None) -> tuple[Entry, bool]:
        """Publishes `data` as a version with the report of its training; returns it, and whether it is new.

        Raises `ArtifactRefused` with every reason, or `InvalidInput` for the report; then nothing is stored.
        """
        try:
            entry, created = await self._publish(data, target, report)
        except ArtifactError as error:
            self._metrics.uploads.labels("refused").inc()
            raise ArtifactRefused(f"the artifact is refused: {error}", error.reasons) from error
        self._metrics.uploads.labels("created" if created else "existing").inc()
        return entry, created

    async def _publish(self, data: bytes, target: UploadTarget, report: bytes | None) -> tuple[Entry, bool]:
        artifact = await self._loader.parse(data)
        checked = None if report is None else await asyncio.to_thread(check_report, report, artifact.digest)
        target = replace(target, name=target.name or artifact.manifest.name)
        if self._store.is_bounded(target.owner.tenant):
            # `publish` checks the quotas again. This check saves the work for an upload that it would refuse, and only
            # tenants with quotas need the query.
            await self._store.registry.require_room(
                target.owner.tenant, target.name or "", digest=artifact.digest, size_bytes=len(data)
            )
        if not self._is_published(artifact.digest, target):
            await self._prove(artifact, target.owner.tenant)
        # Not cancelled with the caller, because that would leave bytes that are reserved but not recorded.
        version, created = await asyncio.shield(self._commit(artifact, data, target, checked))
        return Entry.of(version, artifact.manifest), created

    def _is_published(self, digest: str, target: UploadTarget) -> bool:
        published = self._store.catalog.find(target.owner.tenant, target.name or "")
        return published is not None and digest in {entry.digest for entry in published.entries.values()}

    async def _prove(self, artifact: Artifact, tenant: str) -> None:
        """Runs the golden examples as ordinary rows; an ArtifactError says how their outputs differ."""
        owned = AdapterKey(tenant, artifact.digest)
        try:
            outputs, reasons = await asyncio.gather(self._run(artifact, owned), self._identify(artifact))
            if reasons := reasons or judge_golden(self._loader.backbone, artifact.manifest, outputs):
                raise ArtifactError(reasons)
        except InferenceFailed as error:
            self._forget(owned)
            raise ArtifactError([f"the golden examples cannot be run: {error}"]) from error
        except BaseException:
            self._forget(owned)
            raise

    async def _identify(self, artifact: Artifact) -> list[str]:
        """Why the weights are not those of the recorded outputs. It takes a few milliseconds of another thread."""
        if not is_rounded(self._loader.backbone) or artifact.manifest.substitute_output is None:
            return []
        return await asyncio.to_thread(self._substitute.judge, artifact)

    async def _run(self, artifact: Artifact, owned: AdapterKey) -> list[RowOutput]:
        # Other requests may already ask for bytes that are stored, so these are loaded and proved as for any request.
        unknown = None if self._store.catalog.holds(owned) else artifact
        async with self._slots.lease(owned, owned.tenant, unknown) as lease:
            rows = await asyncio.to_thread(golden_rows, self._loader.backbone, artifact.manifest, lease.resident)
            outcome = await self._batcher.compute(rows, Terms(owned.tenant), reduce=keep_recorded)
            return list(outcome.outputs)

    async def _commit(
        self, artifact: Artifact, data: bytes, target: UploadTarget, report: str | None
    ) -> tuple[VersionRecord, bool]:
        try:
            version, created = await self._record(artifact, data, target, report)
        except BaseException:
            self._forget(AdapterKey(target.owner.tenant, artifact.digest))
            raise
        await self._store.sync.sync_after_write()
        return version, created

    async def _record(
        self, artifact: Artifact, data: bytes, target: UploadTarget, report: str | None
    ) -> tuple[VersionRecord, bool]:
        registry, owner, name = self._store.registry, target.owner, target.name or artifact.manifest.name
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
                alias=target.alias,
                report=report,
                then=target.then,
                actor=owner.actor,
            )
        except BaseException:
            # A reservation expires, so an error of the registry must not replace the reason of the failed upload.
            with suppress(RegistryError):
                await registry.release(reservation)
            raise

    def _forget(self, owned: AdapterKey) -> None:
        if not self._store.catalog.holds(owned):
            self._slots.retire(owned)


def _text_of(manifest: Manifest) -> str:
    # Not pydantic's JSON, which would write a NaN metric as null and refuse to read it.
    return json.dumps(manifest.model_dump(mode="json"))


def check_report(data: bytes, digest: str) -> str:
    """The report as it is stored: its known keys, as JSON. `digest` is that of the artifact.

    Raises `InvalidInput` with every reason if it is too large, no report, or the report of another artifact.
    """
    if len(data) > MAX_REPORT_BYTES:
        raise InvalidInput(f"the report has more than {MAX_REPORT_BYTES} bytes, which is the maximum")
    try:
        report = TrainingReport.model_validate_json(data)
    except ValidationError as error:
        reasons = sentences(error)
        raise InvalidInput(f"the report is refused: {reasons[0]}", reasons) from error
    if report.artifact.digest != digest:
        raise InvalidInput(
            f"the report is of the artifact {report.artifact.digest}, and the uploaded artifact is {digest}"
        )
    return report.model_dump_json()
