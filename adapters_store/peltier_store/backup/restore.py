"""A backup, into a new registry and a new blob store."""

import asyncio
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from pathlib import Path

from peltier_store.backup.backup import BackupError, Summary
from peltier_store.backup.reader import BackupReader, read_backup
from peltier_store.blobs.blobs import Blobs
from peltier_store.registry import Registry

# As many blobs are in memory at a time.
_BATCH = 8


async def import_store(registry: Registry, blobs: Blobs, path: Path) -> Summary:
    """Fills an empty registry and blob store with a backup, all or nothing: the registry's commit is the last step.

    A blob store may hold blobs of this backup, so that an import which broke off can be repeated; it may be that of the
    registry which was exported, and belongs to the new one from then on. Raises BackupError
    for a backup that is not whole, before anything is stored; RegistryConflict or BackupError where something else is
    there; BlobError or RegistryError where the store fails: the registry stays empty, and blobs are for the collector.
    """
    with read_backup(path) as backup:
        await registry.require_empty()
        strangers = await _stored(blobs) - backup.digests
        if strangers:
            raise BackupError(f"the blob store is not empty: it holds {len(strangers)} blobs that the backup does not")
        await asyncio.to_thread(backup.check)

        async def ready() -> None:
            missing = backup.digests - await _stored(blobs)
            if missing:
                raise BackupError(f"{len(missing)} blobs were deleted while they were imported, such as {min(missing)}")

        async with _taken_over(registry, blobs):
            await _put_blobs(backup, blobs)
            await registry.restore(backup.lines(), ready)
        return backup.summary


@asynccontextmanager
async def _taken_over(registry: Registry, blobs: Blobs) -> AsyncIterator[None]:
    """The blob store belongs to this registry, and to its former owner again if the import fails."""
    # From the first moment, because to the former owner's collector all that it does not know is garbage.
    former = await blobs.owner()
    await blobs.hand_over(await registry.identity())
    try:
        yield
    except BaseException:
        if former is not None:
            await blobs.hand_over(former)
        raise


async def _put_blobs(backup: BackupReader, blobs: Blobs) -> None:
    ordered = sorted(backup.digests)
    for start in range(0, len(ordered), _BATCH):
        batch = ordered[start : start + _BATCH]
        await asyncio.gather(*(blobs.put(backup.blob(digest)) for digest in batch))


async def _stored(blobs: Blobs) -> AbstractSet[str]:
    return {entry.digest async for entry in blobs.entries()}
