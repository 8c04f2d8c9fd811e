"""What the holders of trainings do: workers claim, renew and settle them, replicas of the server publish them."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, Required, TypedDict, Unpack

from sqlalchemy import ColumnElement, Connection, func, select

from peltier_store.registry.claims import consume
from peltier_store.registry.errors import InvalidRecord
from peltier_store.registry.extensions.queue import MAX_ATTEMPTS, NO_HOLDER, claimed, is_over, leased, unattempted
from peltier_store.registry.extensions.queue_records import NewEvent, StoredTraining
from peltier_store.registry.extensions.training_owner import end, grant
from peltier_store.registry.extensions.training_state import (
    TRAININGS,
    change,
    find_minutes,
    minutes_of_a_day,
    record,
    spend,
)
from peltier_store.registry.records import Reservation, VersionRecord
from peltier_store.registry.tables import TenantRow
from peltier_store.registry.tenants import require_quotas, require_room_for_bytes
from peltier_store.registry.transactions import QueueTransaction, WriteTransaction, read_clock

_WITH_WORKERS = ("running", "evaluating")
_NO_CHECKPOINT: Mapping[str, Any] = {"checkpoint_digest": None, "checkpoint_bytes": 0}


class TrainingHold(NamedTuple):
    """The claim of a process on a training."""

    training_id: str
    holder: str


def find_work(connection: Connection) -> tuple[bool, bool]:
    """Whether dead workers hold trainings, and whether queued ones can be claimed. A worker that waits asks this again
    and again, without writing."""
    now = read_clock(connection)
    expired = select(StoredTraining.id).where(_is_expired(now)).limit(1)
    return connection.execute(expired).first() is not None, bool(_tenants_in_turn(connection, now))


def count_work(connection: Connection) -> tuple[int, int]:
    """The number of trainings that a worker can claim now, queued or held by a dead worker, and of those that live
    workers hold."""
    now = read_clock(connection)
    is_waiting = (StoredTraining.state == "queued") & StoredTraining.tenant.in_(_tenants_in_turn(connection, now))
    is_held = StoredTraining.state.in_(_WITH_WORKERS) & ~is_over(StoredTraining, now)
    waiting, held = (
        connection.execute(select(func.count()).select_from(StoredTraining).where(condition)).scalar_one()
        for condition in (is_waiting | _is_expired(now), is_held)
    )
    return waiting, held


def _is_expired(now: datetime) -> ColumnElement[bool]:
    return StoredTraining.state.in_(_WITH_WORKERS) & is_over(StoredTraining, now)


def claim(claiming: QueueTransaction, worker: str) -> StoredTraining | None:
    """Gives the next queued training to a worker.

    First is the tenant that has the fewest trainings with workers, then the one that has trained the least in the last
    24 hours; of that tenant the training with the fewest bytes of examples. A tenant whose minutes of the day are used
    up waits. Workers that claim at the same moment do not see each other's choice, so a tenant may get both places.
    """
    for tenant in _tenants_in_turn(claiming.connection, claiming.at):
        queued = TRAININGS.select().where(StoredTraining.tenant == tenant, StoredTraining.state == "queued")
        ordered = queued.order_by(StoredTraining.size_bytes, StoredTraining.created_at, StoredTraining.id)
        if (training := TRAININGS.lock_first(claiming, ordered)) is not None:
            return change(
                claiming,
                training,
                f"The worker {worker} has begun the training.",
                state="running",
                reason=None,
                started_at=training.started_at or claiming.at,
                **claimed(claiming, training, worker),
            )
    return None


def take_back(writing: WriteTransaction) -> None:
    """Queues trainings again whose worker has died, or ends them."""
    expired = TRAININGS.select().where(_is_expired(writing.at)).with_for_update(skip_locked=True)
    for training in TRAININGS.read(writing.connection, expired):
        if training.wish is not None:
            grant(writing, training, training.wish)
        elif training.attempts >= MAX_ATTEMPTS:
            reason = f"{training.attempts} workers ended before its next checkpoint; memory may have run out"
            end(writing, training, "failed", reason)
        else:
            message = f"The worker {training.holder} has ended; the training is queued again."
            change(writing, training, message, state="queued", **NO_HOLDER)


def _tenants_in_turn(connection: Connection, now: datetime) -> list[str]:
    """Tenants with queued trainings and minutes of the day for them."""
    spent = minutes_of_a_day(now)
    minutes, limit = func.coalesce(spent.c.minutes, 0.0), TenantRow.max_training_minutes_per_day
    queued = select(StoredTraining.tenant, minutes).join(TenantRow, TenantRow.name == StoredTraining.tenant)
    queued = queued.outerjoin(spent, spent.c.tenant == StoredTraining.tenant).where(StoredTraining.state == "queued")
    waiting = connection.execute(queued.where(limit.is_(None) | (minutes < limit)).distinct())
    held = select(StoredTraining.tenant, func.count()).where(StoredTraining.state.in_(_WITH_WORKERS))
    running = {tenant: count for tenant, count in connection.execute(held.group_by(StoredTraining.tenant))}  # noqa: C416
    return [tenant for *_, tenant in sorted((running.get(tenant, 0), trained, tenant) for tenant, trained in waiting)]


def _has_minutes(connection: Connection, tenant: str, now: datetime) -> bool:
    limit = require_quotas(connection, tenant).max_training_minutes_per_day
    return limit is None or find_minutes(connection, tenant, now) < limit


class WorkerReport(TypedDict, total=False):
    """What a worker reports: `state` is `running` or `evaluating`, `seconds` the time that workers have spent on
    the training so far. The stored `checkpoint` replaces the one before."""

    state: str | None
    progress: Mapping[str, Any] | None
    preflight: Mapping[str, Any] | None
    events: Iterable[NewEvent]
    checkpoint: Reservation | None
    checkpoint_bytes: int
    seconds: float


class WorkerResult(TypedDict, total=False):
    """How a worker's hold ends: `state` is `paused`, `cancelled`, `queued` because the tenant's minutes are used up,
    `failed` with its `reason`, or `publishing` with a stored `artifact`. `seconds` is that of `WorkerReport`."""

    state: Required[str]
    reason: str | None
    metrics: Mapping[str, float]
    report: str
    artifact: Reservation | None
    artifact_bytes: int
    seconds: float


def renew(writing: WriteTransaction, training_id: str, holder: str, **given: Unpack[WorkerReport]) -> str | None:
    """Extends the lease and stores what is given; returns the owner's wish, `pause` or `cancel`, or `wait` if the
    minutes of the tenant's day are used up.

    Raises LeaseLost, QuotaReached if the tenant has no room for the checkpoint, or BlobBusy if its reservation is gone;
    then nothing is stored.
    """
    training = TRAININGS.held(writing, training_id, holder)
    state, seconds = given.get("state"), spend(writing, training, given.get("seconds"))
    if state not in (None, *_WITH_WORKERS):
        raise InvalidRecord(f"the state {state!r} is not one of a training that a worker has")
    values: dict[str, Any] = {**leased(writing), "seconds": seconds}
    reports = {"progress": given.get("progress"), "preflight": given.get("preflight")}
    values |= {name: dict(value) for name, value in reports.items() if value is not None}
    if (checkpoint := given.get("checkpoint")) is not None:
        size_bytes = given["checkpoint_bytes"]
        _require_room(writing.connection, training, size_bytes)
        consume(writing.connection, checkpoint)
        values |= {"checkpoint_digest": checkpoint.digest, "checkpoint_bytes": size_bytes, "attempts": 1}
    message = None
    if state not in (None, training.state):
        values["state"] = state
        message = f"The training is {state}."
    change(writing, training, message, **values)
    record(writing, training_id, given.get("events", ()))
    return training.wish or (None if _has_minutes(writing.connection, training.tenant, writing.at) else "wait")


def settle(writing: WriteTransaction, training_id: str, holder: str, **given: Unpack[WorkerResult]) -> None:
    """Ends a worker's hold. A training that its owner has cancelled meanwhile ends as cancelled, whatever its state.

    Raises LeaseLost, QuotaReached if the tenant has no room for the artifact in place of the checkpoint, or BlobBusy if
    the artifact's reservation is gone: then reserve and store it again.
    """
    training = TRAININGS.held(writing, training_id, holder)
    training = change(writing, training, seconds=spend(writing, training, given.get("seconds")))
    match "cancelled" if training.wish == "cancel" else given["state"]:
        case "paused":
            grant(writing, training, "pause")
        case "cancelled":
            grant(writing, training, "cancel")
        case "queued":
            reason = f"the training minutes of tenant {training.tenant!r} for 24 hours are used up"
            _queue_again(writing, training, f"The training is queued again: {reason}.", reason)
        case "failed":
            end(writing, training, "failed", given.get("reason"))
        case "publishing" if (artifact := given.get("artifact")) is not None:
            _leave(writing, training, artifact, given)
        case state:
            raise InvalidRecord(f"a worker cannot end a training in the state {state!r}")


def _leave(writing: WriteTransaction, training: StoredTraining, artifact: Reservation, given: WorkerResult) -> None:
    """Leaves a trained adapter to the servers, in place of the checkpoint."""
    size_bytes = given.get("artifact_bytes", 0)
    _require_room(writing.connection, training, size_bytes)
    consume(writing.connection, artifact)
    values = {"metrics": dict(given.get("metrics", {})), "report": given.get("report"), **_NO_CHECKPOINT}
    stored = {"artifact_digest": artifact.digest, "artifact_bytes": size_bytes}
    message = "The training is complete; its adapter is being published."
    change(writing, training, message, state="publishing", wish=None, attempts=0, **values, **stored, **NO_HOLDER)


def _require_room(connection: Connection, training: StoredTraining, size_bytes: int) -> None:
    """Raises QuotaReached unless the tenant may store so many bytes in place of the training's checkpoint."""
    quotas = require_quotas(connection, training.tenant)
    require_room_for_bytes(connection, quotas, training.tenant, size_bytes - training.checkpoint_bytes)


def release(writing: WriteTransaction, training_id: str, holder: str, *, seconds: float | None = None) -> None:
    """Queues the training again, because its worker stops. This does not count as an attempt. Raises LeaseLost."""
    training = TRAININGS.held(writing, training_id, holder)
    training = change(writing, training, seconds=spend(writing, training, seconds))
    _queue_again(writing, training, f"The worker {holder} stops; the training is queued again.", None)


def _queue_again(writing: WriteTransaction, training: StoredTraining, message: str, reason: str | None) -> None:
    """Queues a training whose attempt does not count, unless its owner has a wish."""
    training = change(writing, training, attempts=unattempted(training))
    if training.wish is not None:
        grant(writing, training, training.wish)
    else:
        change(writing, training, message, state="queued", reason=reason, **NO_HOLDER)


def claim_publishing(claiming: QueueTransaction, replica: str) -> StoredTraining | None:
    """Gives a trained adapter that nobody is publishing to a replica of the server; the oldest first."""
    free = is_over(StoredTraining, claiming.at)
    waiting = TRAININGS.select().where(StoredTraining.state == "publishing", free).order_by(StoredTraining.created_at)
    training = TRAININGS.lock_first(claiming, waiting)
    if training is None:
        return None
    return change(claiming, training, holder=replica, **leased(claiming))


def publish(writing: WriteTransaction, hold: TrainingHold, version: VersionRecord) -> None:
    """Ends a training whose adapter this transaction publishes."""
    adapter = f"{version.name}@{version.number}"
    unkept = {"report": None, "artifact_digest": None, "artifact_bytes": 0}
    end(writing, TRAININGS.held(writing, *hold), "succeeded", None, adapter=adapter, **unkept)


def refuse(writing: WriteTransaction, hold: TrainingHold, reason: str) -> None:
    """Ends a training whose adapter cannot be published. The artifact is kept, so that it can be published once the
    reason is gone. Raises LeaseLost."""
    end(writing, TRAININGS.held(writing, *hold), "failed", f"its adapter cannot be published: {reason}")
