"""Deleting the blobs that nothing needs, and never one that something does: `registry.claims` says why."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from peltier_store.blobs.blobs import BlobError, Blobs, StoredBlob
from peltier_store.ownership import require_own
from peltier_store.registry import Registry
from peltier_store.registry.claims import MAX_COLLECTING

_BATCH = 500
_MAX_DELETIONS = 16
# How long deletions that have begun may take once a collection is cancelled; a store that is silent takes longer.
_MAX_STOPPING_SECONDS = 5.0
# An upload that takes longer than this has lost its reservation, so its half-written file is of no use to it. Whole
# blobs are left alone as long: what a mistake of an operator has made garbage of, someone may just be storing.
_MIN_AGE = timedelta(hours=2)


@dataclass(frozen=True)
class Collected:
    """What a collection has found and done. Blobs are kept that are needed or young.

    `num_failed` blobs may or may not be there; the next collection sees to them.
    """

    num_kept: int = 0
    num_deleted: int = 0
    deleted_bytes: int = 0
    num_failed: int = 0
    num_remains: int = 0

    def __add__(self, other: "Collected") -> "Collected":
        return Collected(
            self.num_kept + other.num_kept,
            self.num_deleted + other.num_deleted,
            self.deleted_bytes + other.deleted_bytes,
            self.num_failed + other.num_failed,
            self.num_remains + other.num_remains,
        )


class Collector:
    """Goes through every blob of a store once. Several may run at a time, beside any number of uploads."""

    def __init__(self, registry: Registry, blobs: Blobs) -> None:
        self._registry = registry
        self._blobs = blobs
        self._deletions = asyncio.Semaphore(_MAX_DELETIONS)
        self._is_stopping = False

    async def run(self) -> Collected:
        """Deletes what neither a version nor an upload on its way needs, and files of uploads that broke off.

        Raises RegistryError, or BlobError where the store cannot be listed; what was deleted by then stays deleted.
        Also BlobError where the store is another registry's, and then nothing is deleted. Cancelled, it first finishes
        the deletions that it has begun.
        """
        await require_own(self._registry, self._blobs)
        done = Collected(num_remains=await self._blobs.sweep(_MIN_AGE))
        batch: list[StoredBlob] = []
        async for entry in self._blobs.entries():
            batch.append(entry)
            if len(batch) == _BATCH:
                done += await self._finish(self._collect(batch))
                batch = []
        return done + await self._finish(self._collect(batch))

    async def _finish(self, work: Coroutine[Any, Any, Collected]) -> Collected:
        # A caller may be cancelled, a batch may not: until it gives its claims back, nobody can store the same bytes.
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
        # The watch begins before the registry is asked, so that it never runs behind the registry's.
        deadline = time.monotonic() + MAX_COLLECTING.total_seconds()
        before = datetime.now(UTC) - _MIN_AGE
        free = await self._registry.begin_collection([entry.digest for entry in batch if entry.modified_at <= before])
        chosen = [entry for entry in batch if entry.digest in free]
        outcomes = await asyncio.gather(*(self._delete(entry, deadline) for entry in chosen))
        # A deletion that failed may still happen, when a store that was silent wakes up. Until the registry forgets
        # those claims by itself, nobody can store the same bytes and lose them.
        failed = {entry.digest for entry, outcome in zip(chosen, outcomes, strict=True) if outcome is None}
        if free - failed:
            await self._registry.end_collection(free - failed)
        deleted = [entry.size_bytes for entry, outcome in zip(chosen, outcomes, strict=True) if outcome]
        return Collected(len(batch) - len(deleted) - len(failed), len(deleted), sum(deleted), len(failed))

    async def _delete(self, entry: StoredBlob, deadline: float) -> bool | None:
        """Whether the blob is deleted; None where nobody knows."""
        async with self._deletions:
            if self._is_stopping or time.monotonic() > deadline:
                return False
            try:
                await self._blobs.delete(entry.digest)
            except BlobError:
                return None
        return True
