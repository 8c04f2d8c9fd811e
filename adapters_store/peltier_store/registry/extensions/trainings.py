"""Trainings, and the queue from which workers take them."""

from collections.abc import Collection, Mapping
from typing import Any, Unpack

from sqlalchemy import Connection

from peltier_store.registry.extensions import training_holder, training_owner
from peltier_store.registry.extensions.idempotency import find_repeated
from peltier_store.registry.extensions.queue_records import (
    IdempotencyKey,
    StoredEvent,
    StoredTraining,
    TrainingDraft,
    TrainingSummary,
)
from peltier_store.registry.extensions.training_holder import TrainingHold, WorkerReport, WorkerResult
from peltier_store.registry.extensions.training_state import count_states
from peltier_store.registry.transactions import NO_ACTOR, Transactions, read_clock


class TrainingRegistry:
    """Trainings of a registry's tenants. Each failure is a RegistryError of one sentence."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def create(
        self, tenant: str, draft: TrainingDraft, *, actor: str, key: IdempotencyKey | None = None
    ) -> StoredTraining:
        """Puts a training into the queue, or finds the one that the request with this key has created. Raises
        TenantUnknown, FileUnknown, QuotaReached, or InvalidRecord for its name or the key of another request."""
        return await self._transactions.write(actor, lambda writing: training_owner.create(writing, tenant, draft, key))

    async def find_repeated(self, tenant: str, key: IdempotencyKey | None) -> StoredTraining | None:
        """The training that the request with this key has created. Raises InvalidRecord for the key of another request,
        or TrainingUnknown if the training is deleted."""

        def work(connection: Connection) -> StoredTraining | None:
            found = find_repeated(connection, tenant, key)
            return None if found is None else training_owner.find_own(connection, tenant, found)

        return None if key is None else await self._transactions.read(work)

    async def find(self, tenant: str, training_id: str) -> StoredTraining:
        """Raises TrainingUnknown."""
        return await self._transactions.read(
            lambda connection: training_owner.find_own(connection, tenant, training_id)
        )

    async def state(self, tenant: str, training_id: str) -> str:
        """One of `STATES`. Raises TrainingUnknown."""
        return await self._transactions.read(
            lambda connection: training_owner.find_state(connection, tenant, training_id)
        )

    async def events(self, tenant: str, training_id: str, *, after: int = 0, limit: int = 1000) -> list[StoredEvent]:
        """At most `limit` entries of a training's log that follow the entry `after`, oldest first. Raises
        TrainingUnknown."""
        return await self._transactions.read(
            lambda connection: training_owner.list_events(connection, tenant, training_id, after, limit)
        )

    async def last_events(self, tenant: str, training_id: str, *, before: int | None, limit: int) -> list[StoredEvent]:
        """At most `limit` entries of a training's log that precede the entry `before`, newest first. Raises
        TrainingUnknown."""
        return await self._transactions.read(
            lambda connection: training_owner.list_last_events(connection, tenant, training_id, before, limit)
        )

    async def count(self) -> dict[str, int]:
        """How many trainings there are in each state that is not final."""
        return await self._transactions.read(count_states)

    async def count_work(self) -> tuple[int, int]:
        """The number of trainings that a worker can claim now, queued or held by a dead worker, and of those that live
        workers hold."""
        return await self._transactions.read(
            lambda connection: training_holder.count_work(connection, read_clock(connection))
        )

    async def pause(self, tenant: str, training_id: str, *, actor: str) -> StoredTraining:
        """Pauses a training: a queued one at once, a running one when its worker learns of it. Raises TrainingUnknown,
        or RegistryConflict in other states."""
        return await self._transactions.write(actor, lambda writing: training_owner.pause(writing, tenant, training_id))

    async def resume(self, tenant: str, training_id: str, *, actor: str) -> StoredTraining:
        """Queues a paused or failed training again, from its last checkpoint. Raises TrainingUnknown,
        RegistryConflict, or QuotaReached if a failed one has no room as a new one."""
        return await self._transactions.write(
            actor, lambda writing: training_owner.resume(writing, tenant, training_id)
        )

    async def cancel(self, tenant: str, training_id: str, *, actor: str) -> StoredTraining:
        """Cancels a training: a waiting one at once, a running one when its worker learns of it. Raises
        TrainingUnknown or RegistryConflict."""
        return await self._transactions.write(
            actor, lambda writing: training_owner.cancel(writing, tenant, training_id)
        )

    async def remove(self, tenant: str, training_id: str, *, actor: str) -> None:
        """Deletes an ended training with its log and the examples that were sent with it. Raises TrainingUnknown or
        RegistryConflict."""
        await self._transactions.write(actor, lambda writing: training_owner.remove(writing, tenant, training_id))

    async def claim(self, worker: str) -> StoredTraining | None:
        """The next training for a worker, which has it for `queue.LEASE`; None if nothing waits."""
        work = await self._transactions.read(
            lambda connection: training_holder.find_work(connection, read_clock(connection))
        )
        if work.has_expired:
            await self._transactions.write(NO_ACTOR, training_holder.take_back)
        elif not work.has_queued:
            return None
        return await self._transactions.claim(lambda claiming: training_holder.claim(claiming, worker))

    async def renew(self, training_id: str, worker: str, **given: Unpack[WorkerReport]) -> str | None:
        """Extends the lease and stores what is given; returns the owner's wish, `pause` or `cancel`, or `wait` if the
        tenant's minutes of the day are used up.

        Raises LeaseLost, QuotaReached if the tenant has no room for the checkpoint, or BlobBusy if its reservation is
        gone; then nothing is stored.
        """
        return await self._transactions.write(
            NO_ACTOR, lambda writing: training_holder.renew(writing, training_id, worker, given)
        )

    async def settle(self, training_id: str, worker: str, **given: Unpack[WorkerResult]) -> None:
        """Ends a worker's hold. A training that its owner has cancelled meanwhile is cancelled, whatever is given.

        Raises LeaseLost, QuotaReached if the tenant has no room for the artifact in place of the checkpoint, or
        BlobBusy if the artifact's reservation is gone: then reserve and store it again.
        """
        await self._transactions.write(
            NO_ACTOR, lambda writing: training_holder.settle(writing, training_id, worker, given)
        )

    async def release(self, training_id: str, worker: str, *, seconds: float | None = None) -> None:
        """Queues a training again, because its worker stops. Raises LeaseLost."""
        await self._transactions.write(
            NO_ACTOR, lambda writing: training_holder.release(writing, training_id, worker, seconds)
        )

    async def claim_publishing(self, replica: str) -> StoredTraining | None:
        """A trained adapter that the replica has to publish within the lease; None if there is none. `count` tells
        without writing whether there may be one."""
        return await self._transactions.claim(lambda claiming: training_holder.claim_publishing(claiming, replica))

    async def refuse(self, hold: TrainingHold, reason: str) -> None:
        """Ends a training whose adapter cannot be published for a reason. `Registry.publish` ends one that can be.
        Raises LeaseLost."""
        await self._transactions.write(NO_ACTOR, lambda writing: training_holder.refuse(writing, hold, reason))

    async def requests(self, tenant: str, ids: Collection[str]) -> dict[str, Mapping[str, Any]]:
        """The requests of those of these trainings that still exist."""
        return await self._transactions.read(lambda connection: training_owner.read_requests(connection, tenant, ids))

    async def list(
        self, tenant: str, *, states: Collection[str] = (), limit: int = 100, after: str | None = None
    ) -> list[TrainingSummary]:
        """At most `limit` trainings in one of `states` (none: in any), newest first, that follow the training `after`.

        Raises TrainingUnknown for that one, or InvalidRecord for a state that does not exist.
        """
        return await self._transactions.read(
            lambda connection: training_owner.list_trainings(connection, tenant, states, limit, after)
        )
