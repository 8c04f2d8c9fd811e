"""Exports a store to a backup, while servers may use it."""

import asyncio
from collections.abc import Set as AbstractSet
from pathlib import Path

from peltier_store.backup.backup import Summary
from peltier_store.backup.writer import BackupWriter, write_backup
from peltier_store.blobs.blobs import BlobNotFound, Blobs
from peltier_store.registry import Registry

# The number of blobs in memory at a time.
_BATCH = 8


async def export_store(registry: Registry, blobs: Blobs, path: Path) -> Summary:
    """Writes a new backup of one state of the registry, with the bytes of each of its versions.

    Raises BackupError, RegistryError, or BlobError if a blob is missing or damaged; then it leaves no file.
    """
    with write_backup(path) as backup:
        # Versions published while blobs are copied appear in the rows; their blobs are copied in the next round.
        while True:
            await _add_blobs(backup, registry, blobs, await registry.digests() - backup.digests)
            with backup.row_file() as rows:
                await registry.contents.dump(rows.take)
                if rows.digests <= backup.digests:
                    return backup.finish(rows)


async def _add_blobs(backup: BackupWriter, registry: Registry, blobs: Blobs, digests: AbstractSet[str]) -> None:
    ordered = sorted(digests)
    for start in range(0, len(ordered), _BATCH):
        batch = ordered[start : start + _BATCH]
        for data in await asyncio.gather(*(_fetch(registry, blobs, digest) for digest in batch)):
            if data is not None:
                backup.add_blob(data)


async def _fetch(registry: Registry, blobs: Blobs, digest: str) -> bytes | None:
    """The blob; None if it was purged and collected meanwhile."""
    try:
        return await blobs.get(digest)
    except BlobNotFound:
        if digest in await registry.digests():
            raise
        return None
