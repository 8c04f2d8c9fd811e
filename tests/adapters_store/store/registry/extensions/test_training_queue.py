"""The queue of trainings under any order of claims, deaths, wishes and ends: no training has two holders, runs to its
end twice or is lost."""

import asyncio
import tempfile
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry.database import database_url
from peltier_store.registry.errors import LeaseLost, RegistryConflict
from peltier_store.registry.extensions import queue
from peltier_store.registry.extensions.queue import MAX_ATTEMPTS
from peltier_store.registry.extensions.queue_records import FINAL_STATES, StoredTraining, TrainingDraft
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.extensions.training_holder import TrainingHold
from sqlalchemy import create_engine, update

from tests.adapters_store.store.conftest import MakeRegistry
from tests.adapters_store.store.registry.conftest import add_file, ends, publish

WORKERS = st.sampled_from(["w1", "w2", "w3"])


class QueueMachine(RuleBasedStateMachine):
    """Workers that believe in what they hold, even after their lease has expired and another has claimed it."""

    make_registry: MakeRegistry

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "registry.db"
        self.runner = asyncio.Runner()
        self.registry = Registry(database_url(type(self).make_registry(path)))
        self.engine = create_engine(f"sqlite:///{path}")
        self.created: list[str] = []
        self.believed: dict[str, str] = {}
        self.holders: dict[str, str] = {}
        self.completed: list[str] = []
        self.cancelled: set[str] = set()
        self.patch = pytest.MonkeyPatch()
        # A lease ends only by `expire`, however long the steps take.
        self.patch.setattr(queue, "LEASE", timedelta(days=1))
        self.patch.setattr(queue, "_MAX_LEASE", timedelta(days=1))

    def teardown(self) -> None:
        self.runner.run(self.registry.close())
        self.runner.close()
        self.engine.dispose()
        self.folder.cleanup()
        self.patch.undo()

    @rule(size=st.integers(1, 3))
    def create(self, size: int) -> None:
        """A tenant queues a training."""

        async def work() -> str:
            file = await add_file(self.registry, b"x" * size, tenant="default", is_inline=True)
            draft = TrainingDraft("sst2", {}, file.id)
            return (await self.registry.trainings.create("default", draft, actor="ann")).id

        self.created.append(self.runner.run(work()))

    @rule(worker=WORKERS)
    def claim(self, worker: str) -> None:
        """A worker claims, whatever it had before is forgotten by it."""
        training = self.runner.run(self.registry.trainings.claim(worker))
        if training is not None:
            assert training.id not in self.holders
            assert training.attempts <= MAX_ATTEMPTS
            self.believed[worker], self.holders[training.id] = training.id, worker

    @rule(worker=WORKERS, has_checkpoint=st.booleans())
    @precondition(lambda self: self.believed)
    def renew(self, worker: str, has_checkpoint: bool) -> None:
        """A worker reports, and learns whether it has lost its training."""
        if (training_id := self.believed.get(worker)) is None:
            return

        async def work() -> None:
            checkpoint = await self.registry.reserve(digest_of(b"c")) if has_checkpoint else None
            await self.registry.trainings.renew(training_id, worker, checkpoint=checkpoint, checkpoint_bytes=1)

        self._hold(worker, training_id, work())

    @rule(worker=WORKERS, state=st.sampled_from(["publishing", "failed", "queued"]))
    @precondition(lambda self: self.believed)
    def settle(self, worker: str, state: str) -> None:
        """A worker ends its training, or the tenant's minutes end."""
        if (training_id := self.believed.get(worker)) is None:
            return

        async def work() -> None:
            artifact = await self.registry.reserve(digest_of(b"a")) if state == "publishing" else None
            await self.registry.trainings.settle(training_id, worker, state=state, reason="a test", artifact=artifact)

        if self._hold(worker, training_id, work()):
            self._drop(worker, training_id)
            if state == "publishing" and training_id not in self.cancelled:
                assert training_id not in self.completed
                self.completed.append(training_id)

    @rule(worker=WORKERS)
    @precondition(lambda self: self.believed)
    def release(self, worker: str) -> None:
        """A worker stops."""
        training_id = self.believed.get(worker)
        if training_id and self._hold(worker, training_id, self.registry.trainings.release(training_id, worker)):
            self._drop(worker, training_id)

    @rule(worker=WORKERS)
    @precondition(lambda self: self.believed)
    def expire(self, worker: str) -> None:
        """The lease of a worker ends, because it was killed or is too slow, which nobody can tell apart."""
        training_id = self.believed.get(worker)
        if training_id is None or self.holders.get(training_id) != worker:
            return
        past = datetime.now(UTC) - timedelta(seconds=1)
        with self.engine.begin() as connection:
            connection.execute(
                update(StoredTraining).where(StoredTraining.id == training_id).values(lease_expires_at=past)
            )
        del self.holders[training_id]

    @rule(data=st.data(), wish=st.sampled_from(["pause", "resume", "cancel"]))
    @precondition(lambda self: self.created)
    def wish(self, data: st.DataObject, wish: str) -> None:
        """The owner wishes something, or is refused."""
        training_id = data.draw(st.sampled_from(self.created))
        ask = getattr(self.registry.trainings, wish)
        with suppress(RegistryConflict):
            self.runner.run(ask("default", training_id, actor="ann"))
            if wish == "cancel":
                self.cancelled.add(training_id)

    @rule()
    def publish(self) -> None:
        """A replica publishes what is complete."""
        training = self.runner.run(self.registry.trainings.claim_publishing("r1"))
        if training is not None:
            assert training.id in self.completed
            hold = TrainingHold(training.id, "r1")
            self.runner.run(publish(self.registry, b"a", tenant="default", then=ends(hold)))

    @invariant()
    def nothing_is_lost(self) -> None:
        """Every training is there; those that a worker has are running, and no other is."""
        found = self.runner.run(self.registry.trainings.list("default", limit=1000))
        assert {one.id for one in found} == set(self.created)
        for one in found:
            if one.id in self.holders:
                assert (one.state, one.holder) == ("running", self.holders[one.id])
            if one.id in self.cancelled:
                assert one.state == "cancelled" or one.wish == "cancel"
            if one.id in self.completed:
                assert one.state in ("publishing", *FINAL_STATES)

    def _hold(self, worker: str, training_id: str, work: Coroutine[Any, Any, object]) -> bool:
        """Whether the worker still has the training, in its own opinion and the registry's."""
        taken = self.holders.get(training_id, worker) != worker
        try:
            self.runner.run(work)
        except LeaseLost:
            assert self.holders.get(training_id) != worker
            del self.believed[worker]
            return False
        assert not taken
        self.holders[training_id] = worker
        return True

    def _drop(self, worker: str, training_id: str) -> None:
        del self.believed[worker]
        self.holders.pop(training_id, None)


@pytest.fixture(scope="module", autouse=True)
def _make_registry(make_registry: MakeRegistry) -> None:
    QueueMachine.make_registry = staticmethod(make_registry)


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=30)
