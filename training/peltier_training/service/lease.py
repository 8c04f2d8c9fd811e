"""A training that a worker has: its lease, and what is stored of it while the lease lasts."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from peltier_store.blobs.blobs import BlobDamaged, BlobError, BlobNotFound, Blobs, digest_of
from peltier_store.registry.errors import (
    BlobBusy,
    InvalidRecord,
    LeaseLost,
    NotRegistered,
    QuotaReached,
    RegistryError,
    RegistryGone,
)
from peltier_store.registry.extensions.queue_records import NewEvent, StoredTraining
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.records import Reservation

from peltier_training.data.findings import describe, storable
from peltier_training.service.child import ASKED, Checked, Evaluating, Message, Progressed, Saved

logger = logging.getLogger(__name__)
T = TypeVar("T")
_FINAL = (LeaseLost, BlobBusy, BlobDamaged, BlobNotFound, InvalidRecord, NotRegistered, QuotaReached, RegistryGone)
_RETRY_SECONDS = 1.0


@dataclass(frozen=True)
class Intervals:
    """How often a worker asks for work and renews a lease, the least time between two stored checkpoints, and how long
    it tries to reach a registry or blob store that fails. A lease is longer than all of them (`LEASE`).

    A training that has to stop gets `grace_seconds` for a checkpoint of its next step. For lack of minutes it gets
    `evaluation_seconds` if its final evaluation has begun, which would begin anew."""

    idle_seconds: float = 2.0
    renew_seconds: float = 5.0
    checkpoint_seconds: float = 15.0
    patience_seconds: float = 50.0
    grace_seconds: float = 5.0
    evaluation_seconds: float = 60.0


@dataclass(frozen=True)
class WorkerContext:
    """What a worker reads and writes."""

    registry: Registry
    blobs: Blobs
    worker: str
    intervals: Intervals = Intervals()


class TrainingLease:
    """The claim of a worker on a training, with the checkpoints that its process packs into `archive`."""

    def __init__(self, context: WorkerContext, training: StoredTraining, archive: Path) -> None:
        self.training = training
        self._context, self._archive = context, archive
        # What the next renewal stores.
        self._events: list[NewEvent] = []
        self._latest: dict[str, Any] = {}
        self._in_turn, self._renew_soon = asyncio.Lock(), asyncio.Event()
        self._has_ended = False
        # The step of a checkpoint that is not being stored yet.
        self._new_step: int | None = None
        self._saved = asyncio.Event()
        self._is_evaluating = False
        self._storing: asyncio.Task[_StoredCheckpoint] | None = None
        # Why no more checkpoints are stored.
        self._refusal: QuotaReached | None = None
        self._stored_at = self._begun_at = self._renewed_at = time.monotonic()

    def handle(self, message: Message) -> None:
        """Have what the process tells stored with the next renewal."""
        match message:
            case Checked(preflight):
                self._latest["preflight"] = preflight
                self._events.append(NewEvent("preflight", describe(preflight), preflight))
                self._renew_soon.set()
            case Progressed(progress, is_validation):
                self._latest["progress"] = progress
                if is_validation:
                    self._events.append(NewEvent("progress", _describe_progress(progress), progress))
            case Saved(step):
                self._new_step = step
                self._saved.set()
            case Evaluating():
                self._latest["state"] = "evaluating"
                self._is_evaluating = True
                self._renew_soon.set()

    def note(self, sentence: str) -> None:
        """Write a sentence into the training's log."""
        self._events.append(NewEvent("message", sentence))

    async def keep(self) -> str:
        """Renew the lease until the owner has a wish, or the tenant has no minutes left. Returns `pause`, `cancel` or
        `wait`. Raises LeaseLost, or QuotaReached when a checkpoint does not fit."""
        while True:
            if (wish := await self._renew()) is not None:
                return wish
            if self._refusal is not None:
                raise self._refusal
            try:
                await asyncio.wait_for(self._renew_soon.wait(), self._context.intervals.renew_seconds)
            except TimeoutError:
                continue

    async def wait_for_checkpoint(self, ends: Sequence[asyncio.Task[Any]], wish: str | None) -> None:
        """Ask the process of a training that has to stop for a checkpoint. Wait until there is one or one of `ends` is
        done, for the grace at most."""
        intervals, self._saved = self._context.intervals, asyncio.Event()
        seconds = intervals.evaluation_seconds if wish == "wait" and self._is_evaluating else intervals.grace_seconds
        (self._archive.parent / ASKED).touch()
        saved = asyncio.create_task(self._saved.wait())
        waiting = asyncio.wait((*ends, saved), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        await self.keep_until([asyncio.create_task(waiting)])
        saved.cancel()

    async def keep_until(self, tasks: Collection[asyncio.Task[Any]]) -> None:
        """Renew the lease until `tasks` have ended. Whoever ends the lease then learns of a lost lease."""
        left = set(tasks)
        while left:
            _, left = await asyncio.wait(left, timeout=self._context.intervals.renew_seconds)
            if left:
                with suppress(LeaseLost, RegistryGone):
                    await self._renew()

    async def retry(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work` in the registry or the blob store, which is tried again while they fail."""
        end = time.monotonic() + self._context.intervals.patience_seconds
        while True:
            try:
                return await work()
            except _FINAL:
                raise
            except (RegistryError, BlobError) as error:
                if time.monotonic() > end:
                    raise
                logger.warning("%s: %s", self.training.id, error)
            await asyncio.sleep(_RETRY_SECONDS)

    async def give_back(self) -> None:
        """Queue the training again, with its last checkpoint."""
        await self._store_last_checkpoint()
        await self._end(lambda seconds: self._trainings.release(*self._key, seconds=seconds))

    async def stop(self, wish: str) -> None:
        """End the lease before the training ends, for a reason that `keep` has returned."""
        if wish != "cancel":
            await self._store_last_checkpoint()
        state = {"pause": "paused", "cancel": "cancelled", "wait": "queued"}[wish]
        await self._end(lambda seconds: self._trainings.settle(*self._key, state=state, seconds=seconds))

    async def fail(self, reason: str) -> None:
        """End the training for a reason, after what it has told until then is stored."""
        await self._renew()
        plain = storable(reason)
        settle = self._trainings.settle
        await self._end(lambda seconds: settle(*self._key, state="failed", reason=plain, seconds=seconds))

    async def complete(self, artifact: bytes, report: str, metrics: Mapping[str, float]) -> None:
        """Store the artifact and have it published, unless the owner has another wish by now. Raises QuotaReached if
        it does not fit."""
        if (wish := await self._renew()) in ("pause", "cancel"):
            await self.stop(wish)
            return
        settle = self._trainings.settle
        results: dict[str, Any] = {"metrics": metrics, "report": report, "artifact_bytes": len(artifact)}
        while True:
            reservation = await self.retry(lambda: self._store(artifact))
            results["artifact"] = reservation
            try:
                await self._end(lambda seconds: settle(*self._key, state="publishing", seconds=seconds, **results))
            except BlobBusy:
                continue
            return

    @property
    def _trainings(self) -> Any:
        return self._context.registry.trainings

    @property
    def _key(self) -> tuple[str, str]:
        return self.training.id, self._context.worker

    @property
    def _seconds(self) -> float:
        """The time that workers have spent on the training so far."""
        return self.training.seconds + time.monotonic() - self._begun_at

    async def _end(self, work: Callable[[float], Awaitable[None]]) -> None:
        """End the lease. No renewal follows."""
        async with self._in_turn:
            await self.retry(lambda: work(self._seconds))
            self._has_ended = True

    async def _renew(self) -> str | None:
        async with self._in_turn:
            if self._has_ended:
                return None
            self._renew_soon.clear()
            return await self._renew_now(self._stored_checkpoint())

    async def _renew_now(self, stored: "_StoredCheckpoint | None") -> str | None:
        now, told, latest = time.monotonic(), self._events, self._latest
        self._events, self._latest = [], {}
        checkpoint: dict[str, Any] = {}
        events = told
        if stored is not None:
            checkpoint = {"checkpoint": stored.reservation, "checkpoint_bytes": stored.num_bytes}
            events = [*told, NewEvent("checkpoint", f"Step {stored.step} is saved.", {"step": stored.step})]
        try:
            wish: str | None = await self._trainings.renew(
                *self._key, **latest, **checkpoint, events=events, seconds=self._seconds
            )
        except (LeaseLost, RegistryGone):
            raise
        except QuotaReached as error:
            self._refusal = error
            self._keep(told, latest)
            self.note(f"A checkpoint is not saved: {error}.")
            return await self._renew_now(None)
        except RegistryError as error:
            logger.warning("%s: %s", self.training.id, error)
            self._keep(told, latest)
            if stored is not None and self._new_step is None:
                self._new_step = stored.step
            if now - self._renewed_at > self._context.intervals.patience_seconds:
                raise LeaseLost(f"the lease of {self.training.id} could not be renewed: {error}") from None
            return None
        self._renewed_at = now
        return wish

    def _keep(self, events: list[NewEvent], latest: dict[str, Any]) -> None:
        """Have what a renewal did not store stored with the next one, before what was told meanwhile."""
        self._events, self._latest = [*events, *self._events], {**latest, **self._latest}

    def _stored_checkpoint(self) -> "_StoredCheckpoint | None":
        """A checkpoint that has been stored by now. Starts to store the newest one if it is time."""
        stored = None
        if self._storing is not None and self._storing.done():
            task, self._storing = self._storing, None
            if task.exception() is None:
                stored = task.result()
            else:
                logger.warning("%s: a checkpoint is not stored: %s", self.training.id, task.exception())
        is_due = time.monotonic() - self._stored_at >= self._context.intervals.checkpoint_seconds
        if self._new_step is not None and self._storing is None and is_due and self._refusal is None:
            self._stored_at = time.monotonic()
            self._storing = asyncio.create_task(self._store_archive(self._new_step))
            self._new_step = None
        return stored

    async def _store_last_checkpoint(self) -> None:
        """If it can be stored at once; otherwise the one before it counts."""
        async with self._in_turn:
            try:
                stored = None if self._storing is None else await self._storing
                if self._new_step is not None:
                    stored = await self._store_archive(self._new_step)
                if stored is not None:
                    await self._renew_now(stored)
            except (RegistryError, BlobError) as error:
                logger.warning("%s: its last checkpoint is not stored: %s", self.training.id, error)
                if isinstance(error, LeaseLost):
                    raise

    async def _store_archive(self, step: int) -> "_StoredCheckpoint":
        data = await asyncio.to_thread(self._archive.read_bytes)
        return _StoredCheckpoint(await self._store(data), len(data), step)

    async def _store(self, data: bytes) -> Reservation:
        digest = await asyncio.to_thread(digest_of, data)
        reservation = await self._context.registry.reserve(digest)
        await self._context.blobs.put(data)
        return reservation

    def abandon(self) -> None:
        """Forget what was not stored."""
        if self._storing is not None:
            self._storing.cancel()


class _StoredCheckpoint(NamedTuple):
    """A checkpoint in the blob store that the registry does not know yet."""

    reservation: Reservation
    num_bytes: int
    step: int


def _describe_progress(progress: Mapping[str, Any]) -> str:
    loss = "" if progress["loss"] is None else f", loss {progress['loss']:.4g}"
    value = "" if progress["value"] is None else f", {progress['metric']} {progress['value']:.4g}"
    return f"Step {progress['step']} of at most {progress['max_steps']}{loss}{value}."
