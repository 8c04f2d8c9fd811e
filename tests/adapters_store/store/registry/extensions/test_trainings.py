"""Trainings and their queue, on both databases."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from peltier_client.protocol.administration import TenantQuotas
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry.errors import (
    FileUnknown,
    InvalidRecord,
    LeaseLost,
    QuotaReached,
    RegistryConflict,
    TrainingTooLarge,
    TrainingUnknown,
    TrainingWaits,
)
from peltier_store.registry.extensions import queue, training_owner, training_state
from peltier_store.registry.extensions.idempotency import forget_keys
from peltier_store.registry.extensions.queue_records import (
    IdempotencyKey,
    IdempotencyKeyRow,
    NewEvent,
    StoredTraining,
    TrainingDraft,
    TrainingTimeRow,
)
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.extensions.training_holder import TrainingHold
from peltier_store.registry.records import Reservation
from peltier_store.registry.transactions import WriteTransaction
from sqlalchemy import select, update

from tests.adapters_store.store.registry.conftest import add_file, add_training, ends, publish


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, every holder is as one that has died: its lease expires at once."""

    def expire() -> None:
        monkeypatch.setattr(queue, "LEASE", timedelta(0))

    return expire


async def reserved(registry: Registry, data: bytes) -> Reservation:
    return await registry.reserve(digest_of(data))


async def claimed(registry: Registry, worker: str = "w1") -> StoredTraining:
    training = await registry.trainings.claim(worker)
    assert training is not None
    return training


async def state_of(registry: Registry, training: StoredTraining) -> tuple[str, str | None]:
    found = await registry.trainings.find(training.tenant, training.id)
    return found.state, found.reason


async def trained(registry: Registry, artifact: bytes = b"artifact") -> StoredTraining:
    """A training whose adapter waits to be published."""
    await add_training(registry)
    training = await claimed(registry)
    await registry.trainings.settle(
        training.id, "w1", state="publishing", metrics={"accuracy": 0.5}, report="{}",
        artifact=await reserved(registry, artifact), artifact_bytes=len(artifact),
    )  # fmt: skip
    return training


async def test_a_training_goes_from_the_queue_to_its_adapter(registry: Registry) -> None:
    """With its progress and a log of its states; examples that were sent with it are deleted at the end."""
    draft = await add_training(registry)
    (begun,) = await registry.audit(limit=1)
    assert (begun.action, begun.subject, begun.actor) == ("create_training", draft.id, "ann")
    training = await claimed(registry)
    assert (training.id, training.state, training.holder, training.attempts) == (draft.id, "running", "w1", 1)
    progress = NewEvent("progress", "Step 5 of 9.", {"step": 5})
    await registry.trainings.renew(
        training.id, "w1", preflight={"rows": 3}, progress={"step": 5}, events=[progress], seconds=2.5
    )
    await registry.trainings.renew(training.id, "w1", state="evaluating", seconds=3.5)
    await registry.trainings.settle(
        training.id, "w1", state="publishing", metrics={"f1": 1.0}, report="{}",
        artifact=await reserved(registry, b"a"), artifact_bytes=1, seconds=4.0,
    )  # fmt: skip
    waiting = await registry.trainings.claim_publishing("r1")
    assert waiting is not None
    assert waiting.artifact_digest == digest_of(b"a")
    assert waiting.report == "{}"
    await publish(registry, b"artifact", then=ends(TrainingHold(training.id, "r1")))
    done = await registry.trainings.find("acme", training.id)
    assert (done.state, done.adapter, done.seconds, done.preflight) == ("succeeded", "sst2@1", 4.0, {"rows": 3})
    assert (done.progress, done.metrics, done.train_file_id, done.holder) == ({"step": 5}, {"f1": 1.0}, None, None)
    events = await registry.trainings.events("acme", training.id)
    assert [event.data.get("state", event.kind) for event in events] == [
        "queued", "running", "progress", "evaluating", "publishing", "succeeded",
    ]  # fmt: skip
    assert await registry.trainings.events("acme", training.id, after=events[3].id) == events[4:]


async def test_a_tenant_sees_its_own_trainings(registry: Registry) -> None:
    """In pages, newest first, or those in some states."""
    trainings = [await add_training(registry) for _ in range(3)]
    other = await add_training(registry, tenant="zenith")
    found = await registry.trainings.list("acme", limit=2)
    assert [one.id for one in found] == [trainings[2].id, trainings[1].id]
    assert [one.id for one in await registry.trainings.list("acme", after=found[1].id)] == [trainings[0].id]
    assert await registry.trainings.list("acme", states=["running", "paused"]) == []
    assert await registry.trainings.count() == {"queued": 4}
    for forbidden in (registry.trainings.find, registry.trainings.events):
        with pytest.raises(TrainingUnknown, match=rf"^tenant 'acme' has no training '{other.id}'$"):
            await forbidden("acme", other.id)
    with pytest.raises(InvalidRecord, match="the state 'done' is unknown"):
        await registry.trainings.list("acme", states=["done"])


async def test_a_training_reads_its_tenants_files_only(registry: Registry) -> None:
    foreign = await add_file(registry, tenant="zenith")
    with pytest.raises(FileUnknown):
        await registry.trainings.create("acme", TrainingDraft("sst2", {}, foreign.id), actor="ann")


async def test_quotas_bound_trainings(registry: Registry) -> None:
    """How many have not ended, how many examples one has, and the minutes of a day."""
    await registry.update_tenant(
        "acme", TenantQuotas(max_trainings=1, max_training_rows=5, max_training_minutes_per_day=2.0), actor="operator"
    )
    large = await add_file(registry, num_rows=6)
    with pytest.raises(
        QuotaReached, match=r"^the training has 6 examples, and a training of tenant 'acme' may have 5$"
    ):
        await registry.trainings.create("acme", TrainingDraft("sst2", {}, large.id), actor="ann")
    first = await add_training(registry)
    with pytest.raises(QuotaReached, match=r"^tenant 'acme' has 1 trainings that have not ended and may have 1; wait"):
        await add_training(registry)
    await claimed(registry)
    assert (await registry.usage("acme")).num_trainings == 1
    await registry.trainings.settle(first.id, "w1", state="failed", reason="of a test", seconds=180.0)
    used = await registry.usage("acme")
    assert (used.num_trainings, used.training_minutes) == (0, 3.0)
    with pytest.raises(
        QuotaReached, match=r"^tenant 'acme' has trained 3\.0 minutes in the last 24 hours and may train 2"
    ):
        await add_training(registry)
    with pytest.raises(QuotaReached, match=r"^tenant 'acme' has trained 3\.0 minutes in the last 24 hours"):
        await registry.trainings.resume("acme", first.id, actor="ann")
    await registry.update_tenant("acme", TenantQuotas(), actor="operator")
    await registry.trainings.resume("acme", first.id, actor="ann")
    await registry.update_tenant("acme", TenantQuotas(max_training_minutes_per_day=2.0), actor="operator")
    assert await registry.trainings.count_work() == (0, 0)
    assert await registry.trainings.claim("w1") is None


async def test_a_running_training_waits_when_the_minutes_are_used_up(registry: Registry) -> None:
    """Its worker learns it with its next report, and no worker gets the training before there are minutes again. The
    attempt does not count, and neither does a repeated report."""
    await registry.update_tenant("acme", TenantQuotas(max_training_minutes_per_day=2.0), actor="operator")
    training = await add_training(registry)
    await claimed(registry)
    assert await registry.trainings.renew(training.id, "w1", seconds=119.0) is None
    assert await registry.trainings.renew(training.id, "w1", seconds=119.0) is None
    assert await registry.trainings.renew(training.id, "w1", seconds=120.0) == "wait"
    # An evaluation may take hours, and its worker gives it a longer grace.
    assert await registry.trainings.renew(training.id, "w1", state="evaluating") == "wait"
    await registry.trainings.settle(training.id, "w1", state="queued", seconds=121.0)
    found = await registry.trainings.find("acme", training.id)
    assert (found.state, found.holder, found.attempts, found.seconds) == ("queued", None, 0, 121.0)
    assert found.reason == "the training minutes of tenant 'acme' for 24 hours are used up"
    last = (await registry.trainings.events("acme", training.id))[-1]
    assert last.message == f"The training is queued again: {found.reason}."
    assert await registry.trainings.claim("w1") is None
    await registry.update_tenant("acme", TenantQuotas(max_training_minutes_per_day=3.0), actor="operator")
    assert (await registry.trainings.pause("acme", training.id, actor="ann")).reason is None
    await registry.trainings.resume("acme", training.id, actor="ann")
    again = await claimed(registry)
    assert (again.id, again.reason) == (training.id, None)


async def test_the_wish_of_the_owner_comes_before_the_minutes(registry: Registry) -> None:
    """A training that its owner pauses or cancels does not go on by itself."""
    await registry.update_tenant("acme", TenantQuotas(max_training_minutes_per_day=2.0), actor="operator")
    training = await add_training(registry)
    await claimed(registry)
    await registry.trainings.pause("acme", training.id, actor="ann")
    assert await registry.trainings.renew(training.id, "w1", seconds=200.0) == "pause"
    await registry.trainings.settle(training.id, "w1", state="queued")
    assert (await state_of(registry, training))[0] == "paused"


async def test_minutes_count_from_when_they_were_spent(registry: Registry) -> None:
    """A training that runs for days does not count only on its first; a whole day of minutes is free again after 24 to
    25 hours."""
    await registry.update_tenant("acme", TenantQuotas(max_training_minutes_per_day=2.0), actor="operator")
    training = await add_training(registry)
    await claimed(registry)
    spent_at = []
    for hours, seconds in ((10, 100.0), (20, 200.0)):
        spent_at.append(await registry.trainings.renew(training.id, "w1", seconds=seconds))
        await registry._transactions.write("ann", partial(_spend_earlier, hours=hours))
    assert spent_at == [None, "wait"]
    assert await registry.trainings.renew(training.id, "w1", seconds=210.0) is None
    assert await registry.trainings.renew(training.id, "w1", seconds=220.0) == "wait"


def _spend_earlier(writing: WriteTransaction, hours: int) -> None:
    """Moves what was spent until now."""
    for row in writing.connection.execute(select(TrainingTimeRow.__table__)).all():
        chosen = update(TrainingTimeRow).where(TrainingTimeRow.hour == row.hour)
        writing.connection.execute(chosen.values(hour=row.hour - timedelta(hours=hours)))


async def test_a_deleted_training_gives_no_minutes_back(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the quota nor in the tenant's turn, until they are a day old and purged."""
    await registry.update_tenant("acme", TenantQuotas(max_training_minutes_per_day=2.0), actor="operator")
    for tenant, seconds in (("acme", 119.0), ("zenith", 60.0)):
        training = await add_training(registry, tenant=tenant)
        await claimed(registry)
        await registry.trainings.settle(training.id, "w1", state="failed", reason="of a test", seconds=seconds)
        await registry.trainings.remove(tenant, training.id, actor="ann")
    for tenant in ("acme", "zenith"):
        await add_training(registry, tenant=tenant)
    first = await claimed(registry)
    assert first.tenant == "zenith"
    await registry.trainings.settle(first.id, "w1", state="failed", reason="of a test")
    second = await claimed(registry)
    await registry.trainings.settle(second.id, "w1", state="failed", reason="of a test", seconds=2.0)
    with pytest.raises(
        QuotaReached, match=r"^tenant 'acme' has trained 2\.0 minutes in the last 24 hours and may train"
    ):
        await add_training(registry)
    await registry.purge(timedelta(0), actor="test")
    with pytest.raises(QuotaReached):
        await add_training(registry)
    monkeypatch.setattr(training_state, "_COUNTED", timedelta(0))
    assert (await add_training(registry)).state == "queued"
    await registry.purge(timedelta(0), actor="test")
    monkeypatch.undo()
    assert (await add_training(registry)).state == "queued"


async def test_tenants_take_turns_and_short_trainings_come_first(registry: Registry) -> None:
    """First the tenant with fewer trainings at work, then the one that has trained less; of one tenant the smallest."""
    long, short = await add_training(registry, b"long" * 9), await add_training(registry, b"short")
    middle = await add_training(registry, b"middle" * 2)
    other = await add_training(registry, b"other" * 99, tenant="zenith")
    order = [(await claimed(registry, f"w{number}")).id for number in range(4)]
    assert order == [short.id, other.id, middle.id, long.id]
    assert await registry.trainings.claim("w5") is None
    for number, training in enumerate([short, other, middle, long]):
        seconds = 9.0 if training.tenant == "acme" else 1.0
        await registry.trainings.settle(training.id, f"w{number}", state="failed", reason="of a test", seconds=seconds)
    await add_training(registry)
    last = await add_training(registry, tenant="zenith")
    assert (await claimed(registry)).id == last.id


async def test_work_is_counted_for_workers(registry: Registry, dead: Callable[[], None]) -> None:
    """What one can claim, also of a dead worker, and what others have."""
    for tenant in ("acme", "acme", "zenith"):
        await add_training(registry, tenant=tenant)
    assert await registry.trainings.count_work() == (3, 0)
    await claimed(registry)
    assert await registry.trainings.count_work() == (2, 1)
    dead()
    await claimed(registry)
    assert await registry.trainings.count_work() == (2, 1)


async def test_a_training_of_a_dead_worker_goes_to_another(registry: Registry, dead: Callable[[], None]) -> None:
    """From its checkpoint. The first worker learns that it has lost it, and can store nothing."""
    await add_training(registry)
    dead()
    training = await claimed(registry)
    await registry.trainings.renew(
        training.id, "w1", checkpoint=await reserved(registry, b"checkpoint"), checkpoint_bytes=10
    )
    again = await claimed(registry, "w2")
    assert (again.id, again.holder, again.checkpoint_digest) == (training.id, "w2", digest_of(b"checkpoint"))
    for call in (registry.trainings.renew, registry.trainings.release):
        with pytest.raises(LeaseLost, match=rf"^w1 does not have the training '{training.id}' any more$"):
            await call(training.id, "w1")
    with pytest.raises(LeaseLost):
        await registry.trainings.settle(training.id, "w1", state="failed", reason="no")
    messages = [event.message for event in await registry.trainings.events("acme", training.id)]
    assert "The worker w1 has ended; the training is queued again." in messages


async def test_a_training_that_kills_its_workers_fails(registry: Registry, dead: Callable[[], None]) -> None:
    """After five attempts without a new checkpoint; a worker that stops does not count."""
    training = await add_training(registry)
    await claimed(registry)
    await registry.trainings.release(training.id, "w1")
    dead()
    for _ in range(5):
        await claimed(registry)
    assert await registry.trainings.claim("w1") is None
    reason = "5 workers ended before its next checkpoint; memory may have run out"
    assert await state_of(registry, training) == ("failed", reason)


async def test_a_newer_checkpoint_frees_the_older_one(registry: Registry) -> None:
    """Both count for collectors and quotas only as long as they are needed; a deleted training needs none."""
    training = await add_training(registry)
    await claimed(registry)
    for data in (b"old", b"newer"):
        await registry.trainings.renew(
            training.id, "w1", checkpoint=await reserved(registry, data), checkpoint_bytes=len(data)
        )
    digests = {digest_of(b"old"), digest_of(b"newer")}
    assert await registry.begin_collection(digests) == {digest_of(b"old")}
    assert (await registry.usage("acme")).stored_bytes == len(b"{}\n") + training.request_bytes + 5
    await registry.trainings.settle(training.id, "w1", state="failed", reason="of a test")
    await registry.trainings.remove("acme", training.id, actor="ann")
    assert await registry.begin_collection([digest_of(b"newer")]) == {digest_of(b"newer")}
    assert (await registry.usage("acme")).stored_bytes == 0


async def test_what_a_worker_stores_counts_for_the_quota_of_bytes(registry: Registry) -> None:
    """A checkpoint takes the place of the older one, and the artifact that of the checkpoint; one that does not fit is
    not stored, and the worker keeps the training."""
    training = await add_training(registry)
    stored = len(b"{}\n") + training.request_bytes
    await registry.update_tenant("acme", TenantQuotas(max_stored_bytes=stored + 10), actor="operator")
    await claimed(registry)
    for data in (b"first", b"second"):
        await registry.trainings.renew(
            training.id, "w1", checkpoint=await reserved(registry, data), checkpoint_bytes=10
        )
    large = await reserved(registry, b"large")
    with pytest.raises(
        QuotaReached,
        match=rf"^tenant 'acme' has stored {stored + 10} bytes and may store {stored + 10}, so 1 more do not",
    ):
        await registry.trainings.renew(training.id, "w1", checkpoint=large, checkpoint_bytes=11)
    leaves = partial(registry.trainings.settle, training.id, "w1", state="publishing")
    artifact = await reserved(registry, b"artifact")
    with pytest.raises(QuotaReached, match="so 1 more do not fit"):
        await leaves(artifact=artifact, artifact_bytes=11)
    assert (await registry.trainings.find("acme", training.id)).checkpoint_digest == digest_of(b"second")
    await leaves(artifact=artifact, artifact_bytes=10)
    assert (await registry.trainings.find("acme", training.id)).checkpoint_digest is None
    assert (await registry.usage("acme")).stored_bytes == stored + 10


async def test_a_waiting_training_pauses_and_resumes_at_once(registry: Registry) -> None:
    training = await add_training(registry)
    for _ in range(2):
        assert (await registry.trainings.pause("acme", training.id, actor="ann")).state == "paused"
    assert await registry.trainings.claim("w1") is None
    assert (await registry.trainings.resume("acme", training.id, actor="ann")).state == "queued"
    assert (await claimed(registry)).id == training.id


@pytest.mark.parametrize(("wish", "state"), [("pause", "paused"), ("cancel", "cancelled")])
async def test_a_worker_learns_what_the_owner_wishes(registry: Registry, wish: str, state: str) -> None:
    """With its next report; the training stays with it until it settles."""
    training = await add_training(registry)
    await claimed(registry)
    assert await registry.trainings.renew(training.id, "w1") is None
    ask: Callable[..., Awaitable[StoredTraining]] = getattr(registry.trainings, wish)
    assert (await ask("acme", training.id, actor="ann")).state == "running"
    assert await registry.trainings.renew(training.id, "w1") == wish
    await registry.trainings.settle(training.id, "w1", state=state)
    assert (await state_of(registry, training))[0] == state
    assert [entry.action for entry in await registry.audit(limit=1)] == [f"{wish}_training"]


@pytest.mark.parametrize("state", ["publishing", "failed", "paused"])
async def test_no_end_of_a_worker_overtakes_a_cancellation(registry: Registry, state: str) -> None:
    """Its owner was told that nothing is published, also if the worker learns of it too late; no row is left."""
    training = await add_training(registry)
    await claimed(registry)
    await registry.trainings.cancel("acme", training.id, actor="ann")
    await registry.trainings.settle(
        training.id, "w1", state=state, artifact=await reserved(registry, b"a"), artifact_bytes=1, seconds=1.0
    )
    found = await registry.trainings.find("acme", training.id)
    assert (found.state, found.reason) == ("cancelled", "its owner cancelled it")
    assert (found.wish, found.holder, found.artifact_digest, found.seconds) == (None, None, None, 1.0)
    assert await registry.trainings.claim_publishing("r1") is None
    assert (await registry.usage("acme")).stored_bytes == found.request_bytes


async def test_a_cancellation_replaces_a_pause(registry: Registry) -> None:
    """But not the other way round; a resumption takes a pause back that the worker has not seen."""
    training = await add_training(registry)
    await claimed(registry)
    await registry.trainings.pause("acme", training.id, actor="ann")
    assert (await registry.trainings.resume("acme", training.id, actor="ann")).wish is None
    await registry.trainings.cancel("acme", training.id, actor="ann")
    assert (await registry.trainings.pause("acme", training.id, actor="ann")).wish == "cancel"


@pytest.mark.parametrize(("wish", "state"), [("pause", "paused"), ("cancel", "cancelled")])
async def test_no_wish_waits_for_a_dead_worker(registry, dead, wish, state):
    """Whether the worker dies before the wish or after it."""
    before, after = await add_training(registry), await add_training(registry)
    await claimed(registry)
    ask: Callable[..., Awaitable[StoredTraining]] = getattr(registry.trainings, wish)
    await ask("acme", before.id, actor="ann")
    dead()
    await registry.trainings.renew(before.id, "w1")
    await claimed(registry, "w2")
    assert (await state_of(registry, before))[0] == state
    assert (await ask("acme", after.id, actor="ann")).state == state


async def test_an_ended_training_stays_ended(registry: Registry) -> None:
    """It cannot be paused or cancelled; nothing that has not ended can be deleted."""
    training = await add_training(registry)
    with pytest.raises(RegistryConflict, match="is queued; cancel it before you delete it"):
        await registry.trainings.remove("acme", training.id, actor="ann")
    await registry.trainings.cancel("acme", training.id, actor="ann")
    assert (await registry.trainings.cancel("acme", training.id, actor="ann")).state == "cancelled"
    for refused in (registry.trainings.pause, registry.trainings.resume):
        with pytest.raises(RegistryConflict, match="is cancelled"):
            await refused("acme", training.id, actor="ann")
    await registry.trainings.remove("acme", training.id, actor="ann")
    with pytest.raises(TrainingUnknown):
        await registry.trainings.find("acme", training.id)


async def test_a_refused_adapter_is_kept_until_it_can_be_published(registry: Registry) -> None:
    """Hours of training are not lost to a quota: the owner resumes, and it is published again without a worker."""
    training = await trained(registry)
    await registry.trainings.claim_publishing("r1")
    await registry.trainings.refuse(TrainingHold(training.id, "r1"), "tenant 'acme' has 3 adapters")
    reason = "its adapter cannot be published: tenant 'acme' has 3 adapters"
    assert await state_of(registry, training) == ("failed", reason)
    assert await registry.begin_collection([digest_of(b"artifact")]) == set()
    assert (await registry.trainings.resume("acme", training.id, actor="ann")).state == "publishing"
    again = await registry.trainings.claim_publishing("r2")
    assert again is not None
    assert again.id == training.id


async def test_one_replica_publishes_an_adapter(registry: Registry, dead: Callable[[], None]) -> None:
    """Another one takes it only if the first has died."""
    training = await trained(registry)
    assert await registry.trainings.claim_publishing("r1") is not None
    assert await registry.trainings.claim_publishing("r2") is None
    dead()
    other = await trained(registry, b"other")
    assert await registry.trainings.claim_publishing("r1") is not None
    again = await registry.trainings.claim_publishing("r2")
    assert (again and again.id) == other.id
    await publish(registry, b"artifact", then=ends(TrainingHold(training.id, "r1")))


async def test_who_has_lost_a_training_publishes_nothing(registry: Registry, dead: Callable[[], None]) -> None:
    """Neither a version nor an alias: another replica has published it, or is about to, and its owner may have moved
    the alias since."""
    await publish(registry, b"one")
    training = await trained(registry)
    dead()
    for holder in ("r1", "r2"):
        assert await registry.trainings.claim_publishing(holder) is not None
    with pytest.raises(LeaseLost):
        await publish(registry, b"artifact", alias="live", then=ends(TrainingHold(training.id, "r1")))
    assert len(await registry.versions()) == 1
    await publish(registry, b"artifact", alias="live", then=ends(TrainingHold(training.id, "r2")))
    assert (await registry.trainings.find("acme", training.id)).adapter == "sst2@2"
    await registry.set_alias("acme", "sst2", "live", {1: 1.0}, actor="ann")
    for holder in ("r1", "r2"):
        with pytest.raises(LeaseLost):
            await publish(registry, b"artifact", alias="live", then=ends(TrainingHold(training.id, holder)))
    history = await registry.alias_history("acme", "sst2", "live")
    assert [one.versions for one in history] == [{1: 1.0}, {2: 1.0}]


async def test_owned_files_are_deleted_with_their_training(registry: Registry) -> None:
    """And until then no list shows them."""
    file = await add_file(registry)
    training = await registry.trainings.create("acme", TrainingDraft("sst2", {}, file.id, owns_files=True), actor="ann")
    assert (await registry.files.find("acme", file.id)).is_inline
    await registry.trainings.cancel("acme", training.id, actor="ann")
    with pytest.raises(FileUnknown):
        await registry.files.find("acme", file.id)


@pytest.mark.parametrize(("first", "second"), [(False, True), (True, False)])
async def test_a_file_that_is_owned_has_one_training(registry: Registry, first: bool, second: bool) -> None:
    """Neither may a training own the file of another, nor use a file that another owns."""
    file = await add_file(registry)
    training = await registry.trainings.create(
        "acme", TrainingDraft("sst2", {}, file.id, owns_files=first), actor="ann"
    )
    before = await registry.files.find("acme", file.id)
    draft = TrainingDraft("sst2", {}, file.id, owns_files=second)
    with pytest.raises(RegistryConflict, match=f"the file '{file.id}' of the training '{training.id}' is not for"):
        await registry.trainings.create("acme", draft, actor="ann")
    assert await registry.files.find("acme", file.id) == before


async def test_kept_examples_stay(registry: Registry) -> None:
    """If their owner asks for it, until the training is deleted."""
    file = await add_file(registry, is_inline=True)
    draft = TrainingDraft("sst2", {}, file.id, keep_examples=True)
    training = await registry.trainings.create("acme", draft, actor="ann")
    await registry.trainings.cancel("acme", training.id, actor="ann")
    assert await registry.files.find("acme", file.id) == file
    await registry.trainings.remove("acme", training.id, actor="ann")
    with pytest.raises(FileUnknown):
        await registry.files.find("acme", file.id)


async def test_a_failed_training_resumes_from_its_checkpoint(registry: Registry) -> None:
    """Its examples and its checkpoint are kept for that."""
    training = await add_training(registry)
    await claimed(registry)
    await registry.trainings.renew(training.id, "w1", checkpoint=await reserved(registry, b"c"), checkpoint_bytes=1)
    await registry.trainings.settle(training.id, "w1", state="failed", reason="the disk was full")
    await registry.trainings.resume("acme", training.id, actor="ann")
    again = await claimed(registry)
    assert (again.checkpoint_digest, again.train_file_id) == (digest_of(b"c"), training.train_file_id)
    assert (again.reason, again.finished_at) == (None, None)


async def test_a_failed_training_resumes_only_where_a_new_one_has_room(registry: Registry) -> None:
    """Failed trainings cannot be queued beyond the quota; a paused one has its place already."""
    await registry.update_tenant("acme", TenantQuotas(max_trainings=1), actor="operator")
    trainings = []
    for _ in range(2):
        trainings.append(await add_training(registry))
        await claimed(registry)
        await registry.trainings.settle(trainings[-1].id, "w1", state="failed", reason="of a test")
    first, second = trainings
    await registry.trainings.resume("acme", first.id, actor="ann")
    with pytest.raises(QuotaReached, match=r"^tenant 'acme' has 1 trainings that have not ended and may have 1; wait"):
        await registry.trainings.resume("acme", second.id, actor="ann")
    assert await state_of(registry, second) == ("failed", "of a test")
    await registry.trainings.pause("acme", first.id, actor="ann")
    assert (await registry.trainings.resume("acme", first.id, actor="ann")).state == "queued"
    await registry.update_tenant("acme", TenantQuotas(max_training_rows=0), actor="operator")
    with pytest.raises(TrainingTooLarge, match=r"^the training has 1 examples, and a training of tenant 'acme'"):
        await registry.trainings.resume("acme", second.id, actor="ann")


async def test_an_adapter_is_published_again_without_minutes(registry: Registry) -> None:
    """It needs no worker, but a place among the trainings that have not ended."""
    training = await trained(registry)
    await registry.trainings.claim_publishing("r1")
    await registry.trainings.renew(training.id, "r1", seconds=180.0)
    await registry.trainings.refuse(TrainingHold(training.id, "r1"), "of a test")
    await registry.update_tenant("acme", TenantQuotas(max_trainings=0), actor="operator")
    with pytest.raises(QuotaReached):
        await registry.trainings.resume("acme", training.id, actor="ann")
    await registry.update_tenant("acme", TenantQuotas(max_training_minutes_per_day=2.0), actor="operator")
    assert (await registry.trainings.resume("acme", training.id, actor="ann")).state == "publishing"


async def test_a_log_is_bounded(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest reports of progress and of checkpoints are removed, states never."""
    monkeypatch.setattr(training_state, "MAX_EVENTS", 5)
    training = await add_training(registry)
    await claimed(registry)
    for step in range(20):
        kind = ("progress", "checkpoint")[step % 2]
        await registry.trainings.renew(training.id, "w1", events=[NewEvent(kind, f"Step {step}.", {"step": step})])
    events = await registry.trainings.events("acme", training.id)
    assert [event.kind for event in events[:2]] == ["state", "state"]
    assert [event.data["step"] for event in events[2:]] == [15, 16, 17, 18, 19]
    assert events[-1].data == {"step": 19}


@pytest.mark.parametrize("state", ["succeeded", "running"])
async def test_a_worker_ends_a_training_in_its_states_only(registry: Registry, state: str) -> None:
    """It cannot say that an adapter is published."""
    training = await add_training(registry)
    await claimed(registry)
    with pytest.raises(InvalidRecord, match=f"^a worker cannot end a training in the state '{state}'$"):
        await registry.trainings.settle(training.id, "w1", state=state)


async def test_the_request_of_a_training_counts_for_the_quota_of_bytes(registry: Registry) -> None:
    """As JSON, until the training is deleted; the refused training leaves nothing."""
    file = await add_file(registry)
    request = {"labels": ["\u00e9" * 100]}
    draft, size_bytes = TrainingDraft("sst2", request, file.id), len(json.dumps(request))
    await registry.update_tenant("acme", TenantQuotas(max_stored_bytes=file.size_bytes + size_bytes), actor="operator")
    training = await registry.trainings.create("acme", draft, actor="ann")
    assert (training.request_bytes, (await registry.usage("acme")).stored_bytes) == (size_bytes, 3 + size_bytes)
    with pytest.raises(QuotaReached, match=f"so {size_bytes} more do not fit") as caught:
        await registry.trainings.create("acme", draft, actor="ann")
    assert type(caught.value) is QuotaReached
    assert [one.id for one in await registry.trainings.list("acme")] == [training.id]


async def test_unfinished_trainings_are_bounded_without_a_quota(registry, monkeypatch):
    monkeypatch.setattr(training_owner, "MAX_TRAININGS", 1)
    await add_training(registry)
    with pytest.raises(TrainingWaits, match=r"^tenant 'acme' has 1 trainings that have not ended and may have 1; wait"):
        await add_training(registry)
    await registry.update_tenant("acme", TenantQuotas(max_trainings=2), actor="operator")
    await add_training(registry)


async def test_lists_have_no_requests_and_no_reports(registry: Registry) -> None:
    """Their cost does not grow with the labels of trainings; requests are read for some of them."""
    training = await add_training(registry)
    (listed,) = await registry.trainings.list("acme")
    assert (training.request, listed) == ({"seed": 1}, replace(training, request={}))
    assert await registry.trainings.requests("acme", [training.id, "trn_unknown"]) == {training.id: {"seed": 1}}
    assert await registry.trainings.requests("zenith", [training.id]) == {}


async def test_a_repeated_request_finds_the_training(registry: Registry) -> None:
    """By its key, for each tenant; another request with the key is refused. Old keys are forgotten."""
    file = await add_file(registry)
    draft, key = TrainingDraft("sst2", {}, file.id), IdempotencyKey("a", "digest")
    assert await registry.trainings.find_repeated("acme", key) is None
    made = [await registry.trainings.create("acme", draft, actor="ann", key=key) for _ in range(3)]
    assert {one.id for one in made} == {made[0].id} == {one.id for one in await registry.trainings.list("acme")}
    assert await registry.trainings.find_repeated("acme", key) == made[0]
    assert await registry.trainings.find_repeated("zenith", key) is None
    other = IdempotencyKey("a", "other")
    with pytest.raises(InvalidRecord, match=r"^the Idempotency-Key 'a' was sent with another request; each request"):
        await registry.trainings.create("acme", draft, actor="ann", key=other)
    with pytest.raises(InvalidRecord):
        await registry.trainings.find_repeated("acme", other)


async def test_what_is_refused_keeps_no_key(registry: Registry) -> None:
    """A repetition is checked again; the keys of a day ago are forgotten."""
    key = IdempotencyKey("a", "digest")
    with pytest.raises(FileUnknown):
        await registry.trainings.create("acme", TrainingDraft("sst2", {}, "file-x"), actor="ann", key=key)
    assert await registry.trainings.find_repeated("acme", key) is None
    file = await add_file(registry)
    made = await registry.trainings.create("acme", TrainingDraft("sst2", {}, file.id), actor="ann", key=key)
    for hours, found in ((23, made.id), (1, None)):
        await registry._transactions.write("ann", partial(_send_earlier, hours=hours))
        await registry._transactions.write("ann", forget_keys)
        again = await registry.trainings.find_repeated("acme", key)
        assert (None if again is None else again.id) == found


def _send_earlier(writing: WriteTransaction, hours: int) -> None:
    """Moves the times of all requests with keys."""
    (sent,) = writing.connection.execute(select(IdempotencyKeyRow.created_at)).scalars()
    writing.connection.execute(update(IdempotencyKeyRow).values(created_at=sent - timedelta(hours=hours)))


async def test_the_last_events_come_first(registry: Registry) -> None:
    """Without a bound or before an event; a stranger sees none."""
    training = await add_training(registry)
    await registry.trainings.pause("acme", training.id, actor="ann")
    newest, oldest = await registry.trainings.last_events("acme", training.id, before=None, limit=10)
    assert (newest.data, oldest.data) == ({"state": "paused"}, {"state": "queued"})
    assert await registry.trainings.last_events("acme", training.id, before=newest.id, limit=1) == [oldest]
    with pytest.raises(TrainingUnknown):
        await registry.trainings.last_events("zenith", training.id, before=None, limit=10)
