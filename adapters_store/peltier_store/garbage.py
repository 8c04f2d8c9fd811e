"""Deletes blobs that no version needs. `registry.claims` says why it never deletes a blob that is needed."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import astuple, dataclass
from datetime import timedelta
from typing import Any

from peltier_store.blobs.blobs import BlobError, Blobs, StoredBlob
from peltier_store.location import require_own
from peltier_store.registry.claims import MAX_COLLECTING
from peltier_store.registry.extensions.registry import Registry

_BATCH = 500
_MAX_DELETIONS = 16
# How long a cancelled collection waits for deletions in progress; a store that does not answer takes longer.
_MAX_STOPPING_SECONDS = 5.0
# An upload that takes longer has lost its reservation, so its partial file is useless. Whole blobs are kept as long,
# because an upload may be storing the same bytes under a registry that an operator has set up wrongly.
_MIN_AGE = timedelta(hours=2)


@dataclass(frozen=True)
class Collected:
    """The result of a collection. Blobs that are needed or young are kept.

    It is unknown whether the `num_failed` blobs were deleted; the next collection tries again.
    """

    num_kept: int = 0
    num_deleted: int = 0
    deleted_bytes: int = 0
    num_failed: int = 0
    num_partial_files: int = 0

    def __add__(self, other: "Collected") -> "Collected":
        return Collected(*map(int.__add__, astuple(self), astuple(other)))


class Collector:
    """Goes through every blob of a store once. Several collectors and any number of uploads may run at a time."""

    def __init__(self, registry: Registry, blobs: Blobs) -> None:
        self._registry = registry
        self._blobs = blobs
        self._deletions = asyncio.Semaphore(_MAX_DELETIONS)
        self._is_stopping = False

    async def run(self) -> Collected:
        """Deletes blobs that neither a version nor a running upload needs, and partial files of interrupted uploads.

        Raises RegistryError, or BlobError if the store cannot be listed; blobs deleted before that stay deleted. Raises
        BlobError if another registry owns the store, and then deletes nothing. If it is cancelled, it first finishes
        the deletions in progress.
        """
        await require_own(self._registry, self._blobs)
        # The clock of this machine may be hours ahead of the database's, which `now` knows from then on.
        await self._registry.position()
        done = Collected(num_partial_files=await self._blobs.sweep(_MIN_AGE))
        batch: list[StoredBlob] = []
        async for entry in self._blobs.entries():
            batch.append(entry)
            if len(batch) == _BATCH:
                done += await self._finish(self._collect(batch))
                batch = []
        return done + await self._finish(self._collect(batch))

    async def _finish(self, work: Coroutine[Any, Any, Collected]) -> Collected:
        # Not cancelled with its caller: until the batch releases its claims, nobody can store the same bytes.
        task = asyncio.create_task(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._is_stopping = True
            await asyncio.wait([task], timeout=_MAX_STOPPING_SECONDS)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise

    async def _collect(self, batch: Sequence[StoredBlob]) -> Collected:
        # Started before the request, so that this deadline is never later than the registry's.
        deadline = time.monotonic() + MAX_COLLECTING.total_seconds()
        before = self._registry.now() - _MIN_AGE
        free = await self._registry.begin_collection([entry.digest for entry in batch if entry.modified_at <= before])
        chosen = [entry for entry in batch if entry.digest in free]
        outcomes = await asyncio.gather(*(self._delete(entry, deadline) for entry in chosen))
        # A store that answers again may still carry out a failed deletion. The claims on these blobs stay until they
        # expire, so that nobody stores the same bytes and loses them.
        failed = {entry.digest for entry, outcome in zip(chosen, outcomes, strict=True) if outcome is None}
        if free - failed:
            await self._registry.end_collection(free - failed)
        deleted = [entry.size_bytes for entry, outcome in zip(chosen, outcomes, strict=True) if outcome]
        return Collected(len(batch) - len(deleted) - len(failed), len(deleted), sum(deleted), len(failed))

    async def _delete(self, entry: StoredBlob, deadline: float) -> bool | None:
        """Whether the blob is deleted; None if that is unknown."""
        async with self._deletions:
            if self._is_stopping or time.monotonic() > deadline:
                return False
            try:
                await self._blobs.delete(entry.digest)
            except BlobError:
                return None
        return True
