"""The store and the registry: reachable, of this release's schema, and consistent."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from peltier_client.commands.doctor import Finding
from peltier_store.blobs.blobs import BlobError, Blobs
from peltier_store.location import StoreLocation, require_not_foreign
from peltier_store.registry import Registry, RegistryError
from rich.filesize import decimal

from peltier_server.settings import StoreSettings

_SUBJECT = "store"
_FREE_ARTIFACTS = 4


def check_store(settings: StoreSettings, max_artifact_bytes: int) -> Iterator[Finding]:
    """Reads the registry and lists the blobs; the bytes of artifacts are not read."""
    location = StoreLocation(settings.blobs, settings.registry)
    try:
        location.existing()
    except BlobError:
        text = f"there is no store at {settings.store} yet"
        yield Finding(subject=_SUBJECT, level="note", text=text, next_step="peltier serve creates it")
        return
    if isinstance(location.blobs, Path):
        yield from _check_directory(location.blobs, max_artifact_bytes)
    try:
        yield from asyncio.run(_compare(location))
    except (BlobError, RegistryError, OSError) as error:
        step = "see docs/operations.md#store-and-registry"
        yield Finding(subject=_SUBJECT, level="broken", text=str(error), next_step=step)


def _check_directory(directory: Path, max_artifact_bytes: int) -> Iterator[Finding]:
    if not directory.is_dir():
        return
    if not os.access(directory, os.W_OK):
        text = f"this user may not write to {directory}, so uploads fail"
        step = "run the server as the owner of the folder, or change its owner"
        yield Finding(subject=_SUBJECT, level="broken", text=text, next_step=step)
    free = shutil.disk_usage(directory).free
    if free < _FREE_ARTIFACTS * max_artifact_bytes:
        text = f"the disk of {directory} has {decimal(free)} left, room for few artifacts of max_artifact_bytes"
        yield Finding(
            subject=_SUBJECT, level="note", text=text, next_step="free some; peltier store gc deletes orphans"
        )


async def _compare(location: StoreLocation) -> list[Finding]:
    blobs = await asyncio.to_thread(Blobs.open, location.blobs, read_only=True)
    registry = await Registry.open(location.registry, migrate=False)
    try:
        await require_not_foreign(registry, blobs)
        stored = {entry.digest async for entry in blobs.entries()}
        versions = await registry.versions(deleted=True)
        schema = await registry.schema()
    finally:
        await registry.close()
    lost = [version for version in versions if version.digest not in stored]
    if lost:
        first = lost[0]
        text = f"{len(lost)} of {len(versions)} versions have lost their bytes, such as {first.name}@{first.number}"
        step = "peltier store verify names them; restore them from a backup, or upload them again"
        return [Finding(subject=_SUBJECT, level="broken", text=f"{text} of tenant {first.tenant}", next_step=step)]
    text = f"{blobs.name}: {len(versions)} versions, whose bytes are all there; the registry has the schema {schema}"
    return [Finding(subject=_SUBJECT, level="ok", text=f"{text}, the newest of this release")]
