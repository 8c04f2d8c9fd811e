"""The lease of a training that a worker has."""

import asyncio
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from peltier_client.protocol.administration import TenantQuotas
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry.errors import LeaseLost, QuotaReached, RegistryError
from peltier_store.registry.extensions import training_holder
from peltier_store.registry.extensions.queue_records import StoredTraining
from peltier_store.registry.extensions.trainings import TrainingRegistry
from peltier_training.service.child import ASKED, Evaluating, Saved
from peltier_training.service.lease import Intervals, TrainingLease, WorkerContext

from tests.training.service.conftest import TENANT, Queue, jsonl, praise, request
from tests.training.service.test_worker import until

_OFTEN = Intervals(renew_seconds=0.01)


async def leased(queue: Queue, archive: Path, intervals: Intervals = _OFTEN) -> TrainingLease:
    """The lease of worker w1 on the training that waits."""
    claimed = await queue.registry.trainings.claim("w1")
    return TrainingLease(WorkerContext(queue.registry, queue.blobs, "w1", intervals), claimed, archive)


async def test_the_lease_is_renewed_until_a_stopped_training_has_ended(queue: Queue, tmp_path: Path):
    """A training that shares its process may be in its final evaluation; then its worker gives it back."""
    sent = await queue.add(jsonl(praise()), request())
    lease = await leased(queue, tmp_path / "archive")
    ended = asyncio.Event()
    waiting = asyncio.create_task(lease.keep_until([asyncio.create_task(ended.wait())]))
    await renewed(queue, sent)
    assert not waiting.done()
    ended.set()
    await waiting
    await lease.give_back()
    assert (await queue.find(sent)).state == "queued"


async def test_a_lost_lease_ends_no_wait(queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The process of the training has to end before its files are removed."""
    await queue.add(jsonl(praise()), request())
    claimed = await queue.registry.trainings.claim("w1")
    refusals, renew = asyncio.Semaphore(0), queue.registry.trainings.renew

    async def refused(*given: Any, **options: Any) -> None:
        with pytest.raises(LeaseLost) as lost:
            await renew(*given, **options)
        refusals.release()
        raise lost.value

    monkeypatch.setattr(queue.registry.trainings, "renew", refused)
    lease = TrainingLease(WorkerContext(queue.registry, queue.blobs, "another", _OFTEN), claimed, tmp_path / "archive")

    async def be_refused_twice() -> None:
        for _ in range(2):
            await refusals.acquire()

    task = asyncio.create_task(be_refused_twice())
    await lease.keep_until([task])
    assert task.done()


async def test_a_cancellation_while_the_artifact_is_stored_counts(queue, tmp_path, monkeypatch):
    """The worker has asked for the owner's wish before, and nothing is published."""
    sent = await queue.add(jsonl(praise()), request())
    lease, put = await leased(queue, tmp_path / "archive", Intervals()), queue.blobs.put

    async def slowly(data: bytes) -> str:
        await queue.registry.trainings.cancel(TENANT, sent.id, actor="a")
        return await put(data)

    monkeypatch.setattr(queue.blobs, "put", slowly)
    await lease.complete(b"artifact", "{}", {"accuracy": 1.0})
    assert (await queue.find(sent)).state == "cancelled"
    assert await queue.registry.trainings.claim_publishing("r1") is None


async def test_minutes_that_are_used_up_end_the_lease(queue: Queue, tmp_path: Path):
    """The process is asked for a checkpoint, with which the training waits: each claim brings it on."""
    sent = await queue.add(jsonl(praise()), request())
    lease = await minutes_used_up(queue, tmp_path / "archive")
    (tmp_path / "archive").write_bytes(b"checkpoint")
    assert await lease.keep() == "wait"
    waiting = asyncio.create_task(lease.wait_for_checkpoint([asyncio.create_task(asyncio.sleep(3600))], "wait"))
    while not (tmp_path / ASKED).exists():  # noqa: ASYNC110 - a file has no event
        await asyncio.sleep(0.01)
    lease.handle(Saved(step=5))
    await waiting
    await lease.stop("wait")
    found = await queue.find(sent)
    assert (found.state, found.holder) == ("queued", None)
    assert found.checkpoint_digest == digest_of(b"checkpoint")
    assert await queue.registry.trainings.claim("w1") is None


@pytest.mark.parametrize(("wish", "is_longer"), [("wait", True), ("pause", False), (None, False)])
async def test_a_process_that_saves_nothing_gets_a_grace(queue, tmp_path, wish, is_longer):
    """A longer one for a final evaluation, which would begin anew, and only for lack of minutes."""
    sent = await queue.add(jsonl(praise()), request())
    intervals = Intervals(renew_seconds=0.01, grace_seconds=0.01, evaluation_seconds=3600)
    lease = await minutes_used_up(queue, tmp_path / "archive", intervals)
    await asyncio.wait_for(lease.wait_for_checkpoint([], wish), 60)
    lease.handle(Evaluating())
    waiting = asyncio.create_task(lease.wait_for_checkpoint([], wish))
    if is_longer:
        for _ in range(2):
            await renewed(queue, sent)
        assert not waiting.done()
        waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_training_that_ends_within_its_grace_has_ended(queue: Queue, tmp_path: Path):
    """Nobody waits for a checkpoint then."""
    await queue.add(jsonl(praise()), request())
    lease = await minutes_used_up(queue, tmp_path / "archive", Intervals(grace_seconds=3600))
    await asyncio.wait_for(lease.wait_for_checkpoint([asyncio.create_task(asyncio.sleep(0))], "wait"), 60)


async def test_a_renewal_whose_answer_is_lost_counts_its_seconds_once(queue, tmp_path, monkeypatch):
    """It is sent again and again until an answer comes."""
    sent = await queue.add(jsonl(praise()), request())
    lease = await leased(queue, tmp_path / "archive", Intervals(renew_seconds=0.01, patience_seconds=1e6))
    renew, num_lost = TrainingRegistry.renew, 3

    async def lose(self: TrainingRegistry, *given: Any, **more: Any) -> str | None:
        nonlocal num_lost
        wish = await renew(self, *given, **more)
        num_lost -= 1
        if num_lost >= 0:
            raise RegistryError("the connection was closed")
        return wish or "pause"

    monkeypatch.setattr(TrainingRegistry, "renew", lose)
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 10_000)
    monkeypatch.setattr("peltier_training.service.lease.time", later)
    assert await lease.keep() == "pause"
    assert 10_000 <= (await queue.find(sent)).seconds < 20_000


async def test_a_cancelled_renewal_counts_its_seconds_once(queue, tmp_path, monkeypatch):
    """The registry stores it, though nobody waits for the answer."""
    sent = await queue.add(jsonl(praise()), request())
    lease = await leased(queue, tmp_path / "archive", Intervals())
    begun, may_end, spend = threading.Event(), threading.Event(), training_holder.spend

    def slowly(*given: Any) -> float:
        begun.set()
        assert may_end.wait(60)
        return spend(*given)

    monkeypatch.setattr(training_holder, "spend", slowly)
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 10_000)
    monkeypatch.setattr("peltier_training.service.lease.time", later)
    kept = asyncio.create_task(lease.keep())
    assert await asyncio.to_thread(begun.wait, 60)
    kept.cancel()
    may_end.set()
    await asyncio.wait([kept])
    await lease.give_back()
    assert 10_000 <= (await queue.find(sent)).seconds < 20_000


async def test_a_trained_adapter_is_published_though_the_minutes_are_used_up(queue: Queue, tmp_path: Path):
    """The last step took them."""
    sent = await queue.add(jsonl(praise()), request())
    lease = await minutes_used_up(queue, tmp_path / "archive")
    await lease.complete(b"artifact", "{}", {"accuracy": 1.0})
    assert (await queue.find(sent)).state == "publishing"


async def renewed(queue: Queue, training: StoredTraining) -> None:
    """Returns once the lease of a claimed training ends later than it does now."""
    now = (await queue.find(training)).lease_expires_at
    await until(queue, training, lambda found: found.lease_expires_at > now)


async def minutes_used_up(queue: Queue, archive: Path, intervals: Intervals = _OFTEN) -> TrainingLease:
    """The lease of a training whose tenant has no minutes left since it was claimed."""
    lease = await leased(queue, archive, intervals)
    await queue.registry.update_tenant(TENANT, TenantQuotas(max_training_minutes_per_day=1e-9), actor="a")
    return lease


async def test_a_checkpoint_beyond_the_quota_ends_the_lease(queue: Queue, tmp_path: Path):
    """The one before is kept, also if the training pauses then; its log has the reason."""
    sent = await queue.add(jsonl(praise()), request())
    stored = (await queue.registry.usage(TENANT)).stored_bytes
    await queue.registry.update_tenant(TENANT, TenantQuotas(max_stored_bytes=stored + 9), actor="a")
    lease = await leased(queue, tmp_path / "archive", Intervals(renew_seconds=0.01, checkpoint_seconds=0.0))
    for step, size in ((1, 9), (2, 10)):
        (tmp_path / "archive").write_bytes(b"c" * size)
        lease.handle(Saved(step))
        kept = asyncio.create_task(lease.keep())
        if step == 1:
            await until(queue, sent, lambda found: found.checkpoint_bytes == 9)
            kept.cancel()
            await asyncio.wait([kept])
    with pytest.raises(QuotaReached, match="so 1 more do not fit"):
        await asyncio.wait_for(kept, 60)
    lease.handle(Saved(3))
    await lease.stop("pause")
    found = await queue.find(sent)
    assert (found.state, found.checkpoint_bytes) == ("paused", 9)
    assert "A checkpoint is not saved: tenant 'default' has stored" in (await queue.log(sent, "message"))[0]
