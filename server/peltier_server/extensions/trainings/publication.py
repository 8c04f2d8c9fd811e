"""Publishes the adapters that workers leave: the last step of a training, which any replica can do."""

import asyncio
import logging
from collections import Counter
from contextlib import suppress

from peltier_adapters.errors import AdapterError
from peltier_client.errors import InvalidInput, PeltierError
from peltier_client.protocol.trainings import PublishOptions
from peltier_store.blobs.blobs import BlobDamaged, BlobNotFound
from peltier_store.registry.errors import InvalidRecord, LeaseLost, NotRegistered, QuotaReached, RegistryConflict
from peltier_store.registry.extensions import training_holder
from peltier_store.registry.extensions.queue import create_holder_name
from peltier_store.registry.extensions.queue_records import StoredTraining
from peltier_store.registry.extensions.rollouts import point_alias
from peltier_store.registry.extensions.training_holder import TrainingHold
from peltier_store.registry.records import VersionRecord
from peltier_store.registry.registry import OnPublish
from peltier_store.registry.transactions import WriteTransaction

from peltier_server.auth.keyring import Caller
from peltier_server.background import QueueTask
from peltier_server.catalog.publisher import Publisher, Store, UploadTarget
from peltier_server.metrics.metrics import Metrics

logger = logging.getLogger(__name__)

# Without a change of the registry.
_LOOK_SECONDS = 30.0
# Well below the lease of a training.
_RENEW_SECONDS = 15.0
# A training fails after so many failures of this server that no rule explains.
_ATTEMPTS = 3
# What another attempt cannot change.
_REFUSALS = (InvalidInput, QuotaReached, NotRegistered, RegistryConflict, InvalidRecord, BlobNotFound, BlobDamaged)
_STATES = ("queued", "running", "paused", "evaluating", "publishing")


class TrainingMetrics:
    """The metrics of trainings."""

    def __init__(self, metrics: Metrics) -> None:
        self.trainings = metrics.gauge("peltier_trainings", "Trainings in the registry that have not ended", "state")
        self.publications = metrics.counter(
            "peltier_training_publications_total", "Trained adapters: published by this replica, or refused", "result"
        )


class TrainingPublisher:
    """Claims trained adapters and publishes each as the next version of its task, as an upload of its owner.

    With a guard in the request, the version becomes the candidate of a guarded change of the alias. The transaction
    that publishes it also changes the alias and ends the training, so all of this happens once. A refused adapter, one
    whose guarded change cannot begin, or one beyond a quota of its tenant, ends the training with the reason. After a
    failure of the store the training is published later, by the replica that claims it first when the lease has ended.
    Belongs to the event loop.
    """

    def __init__(self, store: Store, publisher: Publisher, metrics: TrainingMetrics) -> None:
        self._trainings = store.registry.trainings
        self._blobs = store.blobs
        self._publisher = publisher
        self._metrics = metrics
        self._name = f"server {create_holder_name()}"
        self._failures = Counter[str]()
        failure = "trained adapters cannot be published now and are tried again"
        self._turns = QueueTask(self._look, failure, _LOOK_SECONDS)
        store.sync.follow(self._turns.wake)

    def start(self) -> None:
        """Starts to look for trained adapters."""
        self._turns.start()

    async def close(self) -> None:
        """Stops. The lease of an adapter that is being published ends by itself."""
        await self._turns.close()

    async def _look(self) -> bool:
        """Publishes one adapter, if there is one; returns whether there was."""
        counts = await self._trainings.count()
        for state in _STATES:
            self._metrics.trainings.labels(state).set(counts.get(state, 0))
        training = await self._trainings.claim_publishing(self._name) if counts.get("publishing") else None
        if training is None:
            return False
        with suppress(LeaseLost):
            await self._publish(training)
        return True

    async def _publish(self, training: StoredTraining) -> None:
        renewing, reason = asyncio.create_task(self._renew(training)), None
        try:
            await self._try(training)
        except _REFUSALS as error:
            reason = _sentence(error)
        except Exception as error:
            if not self._has_failed_for_good(training, error):
                return
            reason = "the server failed to publish it; its log has the reason"
        finally:
            renewing.cancel()
        self._failures.pop(training.id, None)
        if reason is not None:
            await self._trainings.refuse(TrainingHold(training.id, self._name), reason)
        self._metrics.publications.labels("published" if reason is None else "refused").inc()

    async def _try(self, training: StoredTraining) -> None:
        assert training.artifact_digest is not None, "a worker leaves an adapter"
        owner = Caller(training.tenant, frozenset({"publish"}), training.created_by)
        options = PublishOptions.model_validate(training.request.get("publish") or {})
        data = await self._blobs.get(training.artifact_digest)
        report = None if training.report is None else training.report.encode()
        hold = TrainingHold(training.id, self._name)
        await self._publisher.publish(data, UploadTarget(owner, training.task, then=_end(hold, options)), report)

    async def _renew(self, training: StoredTraining) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            with suppress(AdapterError):
                await self._trainings.renew(training.id, self._name)

    def _has_failed_for_good(self, training: StoredTraining, error: Exception) -> bool:
        """Whether an unexpected failure repeats itself. A known one of the store or of a full queue is temporary."""
        if isinstance(error, AdapterError | PeltierError):
            logger.warning("the adapter of training %s cannot be published now: %s", training.id, error)
            return False
        logger.exception("the adapter of training %s cannot be published", training.id)
        self._failures[training.id] += 1
        return self._failures[training.id] >= _ATTEMPTS


def _end(hold: TrainingHold, options: PublishOptions) -> OnPublish:
    """Points the alias to the version, or begins to try the version there, and ends the training."""

    def end(writing: WriteTransaction, version: VersionRecord) -> None:
        if options.alias is not None:
            point_alias(writing, version, options.alias, options.guard)
        training_holder.publish(writing, hold, version)

    return end


def _sentence(error: Exception) -> str:
    """The reason for the owner, with the first reasons of several. Where the store is, is not for the owner."""
    if isinstance(error, BlobNotFound | BlobDamaged):
        return "its stored bytes are missing or damaged"
    return str(error)
