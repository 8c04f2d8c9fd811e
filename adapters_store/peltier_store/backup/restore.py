"""Imports a backup into a new registry and a new blob store."""

import asyncio
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from pathlib import Path

from peltier_store.backup.backup import BackupError, Summary
from peltier_store.backup.reader import BackupReader, read_backup
from peltier_store.blobs.blobs import Blobs
from peltier_store.registry import Registry

# The number of blobs in memory at a time.
_BATCH = 8


async def import_store(registry: Registry, blobs: Blobs, path: Path) -> Summary:
    """Restores a backup into an empty registry and blob store; the registry's commit is the last step.

    The blob store may already hold blobs of this backup, so that an interrupted import can be repeated. It may also be
    the store of the exported registry; from then on it belongs to the new one. Raises BackupError for an incomplete
    backup, before anything is stored; RegistryConflict or BackupError if the store holds something else; BlobError or
    RegistryError if the store fails. Then the registry stays empty, and the collector deletes the blobs.
    """
    with read_backup(path) as backup:
        await registry.contents.require_empty()
        foreign = await _stored(blobs) - backup.digests
        if foreign:
            raise BackupError(f"the blob store is not empty: it holds {len(foreign)} blobs that the backup does not")
        await asyncio.to_thread(backup.check)

        async def ready() -> None:
            missing = backup.digests - await _stored(blobs)
            if missing:
                raise BackupError(f"{len(missing)} blobs were deleted while they were imported, such as {min(missing)}")

        async with _take_over(registry, blobs):
            await _put_blobs(backup, blobs)
            await registry.contents.restore(backup.lines(), ready)
        return backup.summary


@asynccontextmanager
async def _take_over(registry: Registry, blobs: Blobs) -> AsyncIterator[None]:
    """The blob store belongs to this registry; if the import fails, it belongs to its former owner again."""
    # Before any blob is stored, because the former owner's collector deletes all blobs that its registry lacks.
    former = await blobs.owner.read()
    await blobs.owner.hand_over(await registry.identity())
    try:
        yield
    except BaseException:
        if former is not None:
            await blobs.owner.hand_over(former)
        raise


async def _put_blobs(backup: BackupReader, blobs: Blobs) -> None:
    ordered = sorted(backup.digests)
    for start in range(0, len(ordered), _BATCH):
        batch = ordered[start : start + _BATCH]
        await asyncio.gather(*(blobs.put(backup.blob(digest)) for digest in batch))


async def _stored(blobs: Blobs) -> AbstractSet[str]:
    return {entry.digest async for entry in blobs.entries()}
