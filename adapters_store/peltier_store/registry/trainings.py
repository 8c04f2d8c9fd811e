"""Trainings, and the queue from which workers take them."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from peltier_store.registry import training_holder, training_owner
from peltier_store.registry.records import NewEvent, Reservation, Training, TrainingDraft, TrainingEvent
from peltier_store.registry.training_state import count_states
from peltier_store.registry.transactions import NO_ACTOR, Transactions


class Trainings:
    """Trainings of a registry's tenants. Each failure is a RegistryError of one sentence."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def create(self, tenant: str, draft: TrainingDraft, *, actor: str) -> Training:
        """Puts a training into the queue. Raises TenantUnknown, FileUnknown, QuotaReached, or InvalidRecord for its
        name."""
        return await self._transactions.write(actor, lambda writing: training_owner.create(writing, tenant, draft))

    async def find(self, tenant: str, training_id: str) -> Training:
        """Raises TrainingUnknown."""
        return await self._transactions.read(
            lambda connection: training_owner.find_own(connection, tenant, training_id)
        )

    async def events(self, tenant: str, training_id: str, *, after: int = 0, limit: int = 1000) -> list[TrainingEvent]:
        """At most `limit` entries of a training's log that follow the entry `after`, oldest first. Raises
        TrainingUnknown."""
        return await self._transactions.read(
            lambda connection: training_owner.list_events(connection, tenant, training_id, after, limit)
        )

    async def count(self) -> dict[str, int]:
        """How many trainings there are in each state that is not final."""
        return await self._transactions.read(count_states)

    async def pause(self, tenant: str, training_id: str, *, actor: str) -> Training:
        """Pauses a training: a queued one at once, a running one when its worker learns of it. Raises TrainingUnknown,
        or RegistryConflict in other states."""
        return await self._transactions.write(actor, lambda writing: training_owner.pause(writing, tenant, training_id))

    async def resume(self, tenant: str, training_id: str, *, actor: str) -> Training:
        """Queues a paused or failed training again, from its last checkpoint. Raises TrainingUnknown or
        RegistryConflict."""
        return await self._transactions.write(
            actor, lambda writing: training_owner.resume(writing, tenant, training_id)
        )

    async def cancel(self, tenant: str, training_id: str, *, actor: str) -> Training:
        """Cancels a training: a waiting one at once, a running one when its worker learns of it. Raises
        TrainingUnknown or RegistryConflict."""
        return await self._transactions.write(
            actor, lambda writing: training_owner.cancel(writing, tenant, training_id)
        )

    async def remove(self, tenant: str, training_id: str, *, actor: str) -> None:
        """Deletes an ended training with its log and the examples that were sent with it. Raises TrainingUnknown or
        RegistryConflict."""
        await self._transactions.write(actor, lambda writing: training_owner.remove(writing, tenant, training_id))

    async def claim(self, worker: str) -> Training | None:
        """The next training for a worker, which has it for `training_holder.LEASE`; None if nothing waits."""
        if not await self._transactions.read(
            lambda connection: training_holder.has_work(connection, datetime.now(UTC))
        ):
            return None
        return await self._transactions.write(NO_ACTOR, lambda writing: training_holder.claim(writing, worker))

    async def renew(  # noqa: PLR0913 - what a worker may report
        self,
        training_id: str,
        worker: str,
        *,
        state: str | None = None,
        progress: Mapping[str, Any] | None = None,
        preflight: Mapping[str, Any] | None = None,
        events: Iterable[NewEvent] = (),
        checkpoint: Reservation | None = None,
        checkpoint_bytes: int = 0,
        seconds: float = 0.0,
    ) -> str | None:
        """Extends the lease and stores what is given; returns the owner's wish, `pause` or `cancel`.

        `seconds` is the time since the last call, and the state `running` or `evaluating`. A checkpoint replaces the
        one before. Raises LeaseLost, or BlobBusy if the checkpoint's reservation is gone.
        """
        return await self._transactions.write(
            NO_ACTOR,
            lambda writing: training_holder.renew(
                writing,
                training_id,
                worker,
                state=state,
                progress=progress,
                preflight=preflight,
                events=events,
                checkpoint=checkpoint,
                checkpoint_bytes=checkpoint_bytes,
                seconds=seconds,
            ),
        )

    async def settle(  # noqa: PLR0913 - how a training may end
        self,
        training_id: str,
        worker: str,
        *,
        state: str,
        reason: str | None = None,
        metrics: Mapping[str, float] | None = None,
        report: str | None = None,
        artifact: Reservation | None = None,
        artifact_bytes: int = 0,
        seconds: float = 0.0,
    ) -> None:
        """Ends a worker's hold in the state `paused`, `cancelled`, `failed`, or with a stored artifact `publishing`.

        Raises LeaseLost, or BlobBusy if the artifact's reservation is gone: then reserve and store it again.
        """
        await self._transactions.write(
            NO_ACTOR,
            lambda writing: training_holder.settle(
                writing,
                training_id,
                worker,
                state=state,
                reason=reason,
                metrics=metrics,
                report=report,
                artifact=artifact,
                artifact_bytes=artifact_bytes,
                seconds=seconds,
            ),
        )

    async def release(self, training_id: str, worker: str, *, seconds: float = 0.0) -> None:
        """Queues a training again, because its worker stops. Raises LeaseLost."""
        await self._transactions.write(
            NO_ACTOR, lambda writing: training_holder.release(writing, training_id, worker, seconds)
        )

    async def claim_publishing(self, replica: str) -> Training | None:
        """A trained adapter that the replica has to publish within the lease; None if there is none."""
        if not await self._transactions.read(training_holder.has_adapters):
            return None
        return await self._transactions.write(
            NO_ACTOR, lambda writing: training_holder.claim_publishing(writing, replica)
        )

    async def publish_done(
        self, training_id: str, replica: str, *, adapter: str | None, reason: str | None = None
    ) -> None:
        """Ends a training whose adapter is published as `adapter` (`NAME@VERSION`), or refused for a reason. Raises
        LeaseLost."""
        await self._transactions.write(
            NO_ACTOR, lambda writing: training_holder.publish_done(writing, training_id, replica, adapter, reason)
        )

    async def list(
        self, tenant: str, *, states: Collection[str] = (), limit: int = 100, after: str | None = None
    ) -> list[Training]:
        """At most `limit` trainings in one of `states` (none: in any), newest first, that follow the training `after`.

        Raises TrainingUnknown for that one, or InvalidRecord for a state that does not exist.
        """
        return await self._transactions.read(
            lambda connection: training_owner.list_trainings(connection, tenant, states, limit, after)
        )
