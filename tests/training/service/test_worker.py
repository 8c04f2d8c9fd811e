"""How a worker holds a training, from its claim to its end.

The tests of the gate do the jobs in their own process; `test_command.py` has one whose jobs have processes.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, chdir
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from peltier_adapters.artifact.artifact import read_artifact
from peltier_backbone.backbone import Backbone
from peltier_client.protocol.administration import TenantQuotas
from peltier_store.blobs.blobs import BlobError
from peltier_store.registry.errors import RegistryError
from peltier_store.registry.extensions.queue_records import StoredTraining
from peltier_store.registry.extensions.training_holder import claim, take_back
from peltier_store.registry.transactions import WriteTransaction
from peltier_training.executor.executor import Died
from peltier_training.service import child, examples, worker
from peltier_training.service.child import Message, TrainingJob
from peltier_training.service.job import train_job
from peltier_training.service.lease import Intervals, WorkerContext
from peltier_training.service.request import Machine
from peltier_training.service.worker import TrainingWorker, open_scratch
from sqlalchemy import update

from tests.training.service.conftest import TENANT, Queue, jsonl, praise, request
from tests.training.service.patient_job import GO, work_by_checkpoints

INTERVALS = Intervals(idle_seconds=0.05, renew_seconds=0.05, checkpoint_seconds=0.0, patience_seconds=5.0)
# It would take hours.
ENDLESS = request(settings={"epochs": 10_000})
MakeWorker = Callable[..., TrainingWorker]


class LocalChildren:
    """Jobs that the process of the test does, in place of processes of their own; the first ones may die."""

    def __init__(self, num_deaths: int = 0) -> None:
        self.num_deaths, self.num_started = num_deaths, 0

    async def ready(self) -> None:
        """There is nothing to import."""

    @asynccontextmanager
    async def start(self, job: TrainingJob) -> AsyncIterator[Any]:
        """The messages of a job that has ended."""
        self.num_started += 1
        messages: list[Message] = []
        if self.num_started <= self.num_deaths:
            messages.append(Died(-9))
        else:
            with chdir(job.directory):
                messages.append(train_job(job, messages.append))
        yield SimpleNamespace(read=partial(next, iter(messages)))


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LocalChildren:
    """What the worker of the test starts its jobs with."""
    local = LocalChildren()
    monkeypatch.setattr(worker, "Children", lambda: local)
    # The writer of a run that was cut off goes on in a thread, when the current directory is another.
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    return local


@pytest.fixture
def make_worker(queue: Queue, machine: Machine, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> MakeWorker:
    """`make_worker(name, …)`: a worker on the queue, whose rows are in the folder `scratch`."""
    monkeypatch.setattr("peltier_training.service.worker.open_scratch", partial(open_scratch, scratch))

    def make(name: str = "w1", *, once: bool = True, intervals: Intervals = INTERVALS) -> TrainingWorker:
        context = WorkerContext(queue.registry, queue.blobs, name, intervals)
        return TrainingWorker(context, machine, once=once)

    return make


@asynccontextmanager
async def running(made: TrainingWorker) -> AsyncIterator[asyncio.Task[None]]:
    """The worker beside the block, at whose end it has ended."""
    task = asyncio.create_task(made.run())
    try:
        yield task
    finally:
        made.stop()
        await task


async def until(queue: Queue, training: StoredTraining, is_so: Callable[[StoredTraining], Any]) -> StoredTraining:
    """The training when it is so."""
    async with asyncio.timeout(400):
        while not is_so(found := await queue.find(training)):  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.02)
    return found


def scratches(scratch: Path) -> list[Path]:
    """What a worker has on the disk."""
    return sorted(scratch.glob("peltier-worker-*/trn*"))


@pytest.mark.usefixtures("children")
async def test_a_worker_trains_what_waits(queue: Queue, make_worker: MakeWorker, bert: Backbone, scratch: Path):
    """The artifact, its report and the metrics are there to be published, and no row of the tenant is left."""
    trainings = [await queue.add(jsonl(praise(seed=seed))) for seed in range(2)]
    await make_worker().run()
    for training in trainings:
        found = await queue.find(training)
        assert (found.state, found.holder) == ("publishing", None)
        data = await queue.blobs.get(found.artifact_digest)
        assert len(data) == found.artifact_bytes
        assert read_artifact(data, bert).manifest.training.metrics == found.metrics
        assert found.artifact_digest in found.report
        assert found.seconds > 0
        assert found.preflight["rows"] == {"train": 48, "validation": 12}
        (line,) = await queue.log(training, "preflight")
        assert line.startswith("48 rows to train on and 12 to validate on were checked. Training rows: 48, which")
        assert all(sentence in line for sentence in found.preflight["warnings"])
        assert len(await queue.log(training, "progress")) == 2
    assert scratches(scratch) == []


@pytest.mark.usefixtures("children")
async def test_a_training_beyond_the_quota_of_bytes_fails(queue: Queue, make_worker: MakeWorker, scratch: Path):
    """With the reason; the bytes of the store stay below the quota."""
    training = await queue.add(jsonl(praise()))
    before = (await queue.registry.usage(TENANT)).stored_bytes
    await queue.registry.update_tenant(TENANT, TenantQuotas(max_stored_bytes=before + 10), actor="a")
    await make_worker().run()
    found = await queue.find(training)
    stored = f"tenant 'default' has stored {before} bytes and may store {before + 10}, so "
    assert found.state == "failed"
    assert found.reason.startswith(f"what it has learned cannot be stored: {stored}")
    assert (await queue.registry.usage(TENANT)).stored_bytes == before
    assert scratches(scratch) == []


@pytest.mark.slow
async def test_the_rate_of_a_training_estimates_the_next(queue: Queue, make_worker: MakeWorker):
    """Of the same preset; the first has none, and one that computes fewer blocks with gradients has another."""
    asked = [request(), request(), request(settings={"first_block": 1})]
    trainings = [await queue.add(jsonl(praise(seed=seed)), one) for seed, one in enumerate(asked)]
    await make_worker().run()
    minutes = [(await queue.find(training)).preflight["minutes"] for training in trainings]  # type: ignore[index]
    assert minutes[:2].count(None) == 1
    assert minutes[2] is None


@pytest.mark.usefixtures("children")
async def test_what_cannot_be_trained_fails_with_the_reason(queue: Queue, make_worker: MakeWorker):
    """The next one is trained."""
    bad = await queue.add(jsonl([{"text": "a", "label": "b"}]))
    gone = await queue.add(jsonl(praise(seed=1)))
    good = await queue.add(jsonl(praise(seed=2)))
    file = await queue.registry.files.find(TENANT, gone.train_file_id)
    await queue.blobs.delete(file.digest)
    await make_worker().run()
    assert [(await queue.find(one)).state for one in (bad, gone, good)] == ["failed", "failed", "publishing"]
    assert (await queue.find(bad)).reason == "classification needs at least 2 labels; there are 1: b"


async def test_a_file_that_is_too_large_is_not_fetched(queue, make_worker, children, monkeypatch):
    """The registry knows its size."""
    monkeypatch.setattr(examples, "MAX_FILE_BYTES", 100)
    training = await queue.add(jsonl(praise()), name="large.jsonl")
    await make_worker().run()
    reason = (await queue.find(training)).reason
    assert reason.startswith("the file 'large.jsonl' has ")
    assert children.num_started == 0


@pytest.mark.slow
async def test_a_pause_keeps_the_last_checkpoint(queue, make_worker, monkeypatch):
    """After it the training goes on from there, and ends with the weights of one that was not paused."""
    asked = request(settings={"epochs": 24})
    training, other = await queue.add(jsonl(praise()), asked), None
    async with running(make_worker(once=False)):
        with monkeypatch.context() as patch:
            patch.setattr(child, "_work", work_by_checkpoints)
            await until(queue, training, lambda found: found.checkpoint_digest)
            await queue.registry.trainings.pause(TENANT, training.id, actor="a")
            paused = await until(queue, training, lambda found: found.state == "paused")
        assert paused.checkpoint_digest is not None
        assert paused.progress["step"] < 72
        await queue.registry.trainings.resume(TENANT, training.id, actor="a")
        resumed = await until(queue, training, lambda found: found.state == "publishing")
        other = await queue.add(jsonl(praise()), asked)
        whole = await until(queue, other, lambda found: found.state == "publishing")
    assert resumed.artifact_digest == whole.artifact_digest


@pytest.mark.slow
async def test_a_training_whose_minutes_are_used_up_goes_on_when_there_are_more(
    queue: Queue, make_worker: MakeWorker, scratch: Path, monkeypatch: pytest.MonkeyPatch
):
    """From its last checkpoint, to the weights of one that did not wait."""
    asked = request(settings={"epochs": 24})
    training = await queue.add(jsonl(praise()), asked)
    async with running(make_worker(once=False)):
        with monkeypatch.context() as patch:
            patch.setattr(child, "_work", work_by_checkpoints)
            found = await until(queue, training, lambda found: found.checkpoint_digest)
            await queue.registry.update_tenant(TENANT, TenantQuotas(max_training_minutes_per_day=1e-9), actor="a")
            for _ in range(3):  # the last of them begins once the worker knows of the quota
                lease = found.lease_expires_at
                found = await until(queue, training, lambda found, lease=lease: found.lease_expires_at > lease)
            (folder,) = scratches(scratch)
            (folder / GO).touch()
            waiting = await until(queue, training, lambda found: found.state == "queued")
        assert waiting.progress["step"] < 72
        await queue.registry.update_tenant(TENANT, TenantQuotas(), actor="a")
        resumed = await until(queue, training, lambda found: found.state == "publishing")
        other = await queue.add(jsonl(praise()), asked)
        whole = await until(queue, other, lambda found: found.state == "publishing")
    assert resumed.artifact_digest == whole.artifact_digest


@pytest.mark.slow
async def test_a_cancelled_training_ends(queue: Queue, make_worker: MakeWorker, scratch: Path):
    """Its process too, and the worker takes the next."""
    training, following = await queue.add(jsonl(praise()), ENDLESS), await queue.add(jsonl(praise(90)))
    async with running(make_worker(once=False)):
        await until(queue, training, lambda found: found.progress)
        await queue.registry.trainings.cancel(TENANT, training.id, actor="a")
        cancelled = await until(queue, training, lambda found: found.state == "cancelled")
        await until(queue, following, lambda found: found.state == "publishing")
    assert cancelled.holder is None
    assert scratches(scratch) == []


@pytest.mark.slow
async def test_a_stopped_worker_gives_its_training_back(queue: Queue, make_worker: MakeWorker):
    """With its last checkpoint; it does not count as an attempt, and another worker goes on."""
    training = await queue.add(jsonl(praise()), ENDLESS)
    async with running(make_worker("w1", once=False)):
        await until(queue, training, lambda found: found.checkpoint_digest)
    given = await queue.find(training)
    assert (given.state, given.holder, given.attempts) == ("queued", None, 0)
    async with running(make_worker("w2", once=False)):
        found = await until(queue, training, lambda found: found.state == "running" and found.holder == "w2")
        before = given.progress["step"] if given.progress else 0
        await until(queue, training, lambda found: found.progress["step"] > before)
    assert found.holder == "w2"


@pytest.mark.slow
async def test_a_worker_that_lost_its_lease_stores_nothing(queue: Queue, make_worker: MakeWorker):
    """Another has taken the training, and this one takes the next."""
    training = await queue.add(jsonl(praise()), ENDLESS)
    async with running(make_worker("slow", once=False)) as task:
        await until(queue, training, lambda found: found.progress)
        await take_over(queue, training, "quick")
        following = await queue.add(jsonl(praise(90)))
        await until(queue, following, lambda found: found.state == "publishing")
        assert not task.done()
        assert (await queue.find(training)).holder == "quick"


async def take_over(queue: Queue, training: StoredTraining, name: str) -> None:
    """Have another worker claim a training whose lease has expired, before its holder can renew it, and keep it."""

    def claim_expired(writing: WriteTransaction) -> StoredTraining | None:
        row = update(StoredTraining).where(StoredTraining.id == training.id)
        writing.connection.execute(row.values(lease_expires_at=datetime(2020, 1, 1, tzinfo=UTC)))
        take_back(writing)
        claimed = claim(writing, name)
        writing.connection.execute(row.values(lease_expires_at=writing.at + timedelta(minutes=30)))
        return claimed

    claimed = await queue.registry._transactions.write("", claim_expired)
    assert claimed.id == training.id


@pytest.mark.parametrize(("num_deaths", "state"), [(1, "publishing"), (9, "failed")])
async def test_a_killed_process_is_started_again_once(queue, make_worker, children, num_deaths, state):
    """As the kernel kills what takes too much memory. If the next one dies too, the training fails."""
    children.num_deaths = num_deaths
    training = await queue.add(jsonl(praise()))
    await make_worker().run()
    found = await queue.find(training)
    assert (found.state, children.num_started) == (state, 2)
    assert (await queue.log(training, "message"))[0].endswith("memory may have run out; it is started again.")


@pytest.mark.slow
async def test_outages_are_waited_for(queue: Queue, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch):
    """Of the registry and of the blob store, wherever they come."""
    for place, names, kind in (
        (queue.registry.trainings, ("claim", "renew", "settle"), RegistryError),
        (queue.registry, ("reserve",), RegistryError),
        (queue.registry.files, ("find",), RegistryError),
        (queue.blobs, ("get", "put"), BlobError),
    ):
        for name in names:
            monkeypatch.setattr(place, name, failing_first(getattr(place, name), kind))
    monkeypatch.setattr("peltier_training.service.lease._RETRY_SECONDS", 0.01)
    training = None
    while training is None:
        try:
            training = await queue.add(jsonl(praise()))
        except (RegistryError, BlobError):
            continue
    async with running(make_worker(once=False)):
        await until(queue, training, lambda found: found.state == "publishing")
    assert len(await queue.log(training, "preflight")) == 1


def failing_first(work: Any, kind: type[Exception]) -> Any:
    """`work` that fails at its first call."""
    calls: list[None] = []

    async def fail(*arguments: Any, **options: Any) -> Any:
        calls.append(None)
        if len(calls) == 1:
            raise kind("the other side does not answer")
        return await work(*arguments, **options)

    return fail


@pytest.mark.slow
async def test_a_registry_that_stays_away_ends_the_lease(queue, make_worker, monkeypatch):
    """Before another worker may claim the training, its process is killed."""
    training = await queue.add(jsonl(praise()), ENDLESS)
    async with running(make_worker(once=False, intervals=replace(INTERVALS, patience_seconds=0.3))):
        await until(queue, training, lambda found: found.progress)
        with monkeypatch.context() as patch:

            async def fail(*_: Any, **__: Any) -> None:
                raise RegistryError("the other side does not answer")

            ended = asyncio.Event()
            take = worker.shutil.rmtree

            def remove(*arguments: Any, **options: Any) -> None:
                take(*arguments, **options)
                ended.set()

            patch.setattr(worker.shutil, "rmtree", remove)
            for name in ("renew", "claim"):
                patch.setattr(queue.registry.trainings, name, fail)
            async with asyncio.timeout(120):
                await ended.wait()
        assert (await queue.find(training)).holder == "w1"


_KILLED = """
import os, sys
from pathlib import Path
from peltier_training.service.worker import open_scratch
scratch = open_scratch(Path(sys.argv[1]))
(scratch.__enter__() / "train.jsonl").write_text("private")
os.kill(os.getpid(), 9)
"""


def test_nothing_stays(tmp_path: Path):
    """Only this user reads it meanwhile."""
    with open_scratch(tmp_path) as scratch:
        (scratch / "train.jsonl").write_text("private")
        assert os.stat(scratch).st_mode & 0o77 == 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_worker_left_is_removed_by_the_next(tmp_path: Path):
    """What a running one has is not."""
    with open_scratch(tmp_path) as running:
        subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
        assert len(list(tmp_path.iterdir())) == 2
        with open_scratch(tmp_path) as later:
            assert sorted(tmp_path.iterdir()) == sorted([running, later])
