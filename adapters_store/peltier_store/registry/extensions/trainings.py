"""Trainings, and the queue from which workers take them."""

from peltier_store.registry.extensions import training_holder, training_owner
from peltier_store.registry.extensions.queue_records import IdempotencyKey, StoredTraining, TrainingDraft
from peltier_store.registry.extensions.training_state import count_states
from peltier_store.registry.operations import Operations, reads, writes
from peltier_store.registry.transactions import NO_ACTOR


class TrainingRegistry(Operations):
    """Trainings of a registry's tenants, for their owners and for those who hold them."""

    find = reads(training_owner.find_own)
    state = reads(training_owner.find_state)
    list = reads(training_owner.list_trainings)
    requests = reads(training_owner.read_requests)
    events = reads(training_owner.list_events)
    last_events = reads(training_owner.list_last_events)
    count = reads(count_states)
    count_work = reads(training_holder.count_work)
    renew = writes(training_holder.renew)
    settle = writes(training_holder.settle)
    release = writes(training_holder.release)
    refuse = writes(training_holder.refuse)

    async def create(
        self, tenant: str, draft: TrainingDraft, *, actor: str, key: IdempotencyKey | None = None
    ) -> StoredTraining:
        """Puts a training into the queue, or finds the one that the request with this key has created. Raises
        TenantUnknown, FileUnknown, QuotaReached, or InvalidRecord for its name or the key of another request."""
        return await self._write(actor, training_owner.create, tenant, draft, key)

    async def find_repeated(self, tenant: str, key: IdempotencyKey | None) -> StoredTraining | None:
        """The training that the request with this key has created. Raises InvalidRecord for the key of another request,
        or TrainingUnknown if the training is deleted."""
        return None if key is None else await self._read(training_owner.find_repeated_own, tenant, key)

    async def pause(self, tenant: str, training_id: str, *, actor: str) -> StoredTraining:
        """Pauses a training: a queued one at once, a running one when its worker learns of it. Raises TrainingUnknown,
        or RegistryConflict in other states."""
        return await self._write(actor, training_owner.pause, tenant, training_id)

    async def resume(self, tenant: str, training_id: str, *, actor: str) -> StoredTraining:
        """Queues a paused or failed training again, from its last checkpoint. Raises TrainingUnknown,
        RegistryConflict, or QuotaReached if a failed one has no room as a new one."""
        return await self._write(actor, training_owner.resume, tenant, training_id)

    async def cancel(self, tenant: str, training_id: str, *, actor: str) -> StoredTraining:
        """Cancels a training: a waiting one at once, a running one when its worker learns of it. Raises
        TrainingUnknown or RegistryConflict."""
        return await self._write(actor, training_owner.cancel, tenant, training_id)

    async def remove(self, tenant: str, training_id: str, *, actor: str) -> None:
        """Deletes an ended training with its log and the examples that were sent with it. Raises TrainingUnknown or
        RegistryConflict."""
        await self._write(actor, training_owner.remove, tenant, training_id)

    async def claim(self, worker: str) -> StoredTraining | None:
        """The next training for a worker, which has it for `queue.LEASE`; None if nothing waits."""
        has_expired, has_queued = await self._read(training_holder.find_work)
        if has_expired:
            await self._write(NO_ACTOR, training_holder.take_back)
        elif not has_queued:
            return None
        return await self._transactions.claim(lambda claiming: training_holder.claim(claiming, worker))

    async def claim_publishing(self, replica: str) -> StoredTraining | None:
        """A trained adapter that the replica has to publish within the lease; None if there is none. `count` tells
        without writing whether there may be one."""
        return await self._transactions.claim(lambda claiming: training_holder.claim_publishing(claiming, replica))
