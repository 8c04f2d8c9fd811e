"""What the holders of trainings do: workers claim, renew and settle them, replicas of the server publish them.

A holder has a training until its lease expires, and renews the lease meanwhile. Every claim is a writing transaction,
and the registry has one of these at a time, so a training never has two holders. A holder that was too slow, and whose
training another has taken, learns it by LeaseLost at its next call and stores nothing.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, select

from peltier_store.registry.claims import consume
from peltier_store.registry.errors import InvalidRecord, LeaseLost
from peltier_store.registry.records import NewEvent, Reservation, Training
from peltier_store.registry.tables import TrainingRow
from peltier_store.registry.tenants import require_quotas
from peltier_store.registry.training_owner import end, grant
from peltier_store.registry.training_state import (
    change,
    find,
    minutes_of_a_day,
    record,
    select_trainings,
    training_of,
)
from peltier_store.registry.transactions import WriteTransaction

LEASE = timedelta(seconds=60)
MAX_ATTEMPTS = 5
_WITH_WORKERS = ("running", "evaluating")
_NO_HOLDER: Mapping[str, Any] = {"holder": None, "lease_expires_at": None}


def has_work(connection: Connection, now: datetime) -> bool:
    """Whether a worker may find something to claim. A worker that waits asks this again and again, without writing."""
    expired = TrainingRow.state.in_(_WITH_WORKERS) & (TrainingRow.lease_expires_at <= now)
    wanted = select(TrainingRow.id).where((TrainingRow.state == "queued") | expired)
    return connection.execute(wanted.limit(1)).first() is not None


def has_adapters(connection: Connection) -> bool:
    """Whether a trained adapter is not published yet."""
    return (
        connection.execute(select(TrainingRow.id).where(TrainingRow.state == "publishing").limit(1)).first() is not None
    )


def claim(writing: WriteTransaction, worker: str) -> Training | None:
    """Gives the next training to a worker.

    First is the tenant that has the fewest trainings with workers, then the one that has trained the least in the last
    24 hours; of that tenant the training with the fewest bytes of examples. A tenant whose minutes of the day are used
    up waits.
    """
    _take_back(writing)
    tenants = _tenants_in_turn(writing)
    if not tenants:
        return None
    queued = select_trainings().where(TrainingRow.tenant == tenants[0], TrainingRow.state == "queued")
    ordered = queued.order_by(TrainingRow.size_bytes, TrainingRow.created_at, TrainingRow.id)
    training = training_of(writing.connection.execute(ordered.limit(1)).one())
    return change(
        writing,
        training,
        f"The worker {worker} has begun the training.",
        state="running",
        holder=worker,
        lease_expires_at=writing.at + LEASE,
        started_at=training.started_at or writing.at,
        attempts=training.attempts + 1,
    )


def _take_back(writing: WriteTransaction) -> None:
    """Queues trainings again whose worker has died, or ends them."""
    expired = TrainingRow.state.in_(_WITH_WORKERS) & (TrainingRow.lease_expires_at <= writing.at)
    for row in list(writing.connection.execute(select_trainings().where(expired))):
        training = training_of(row)
        if training.wish is not None:
            grant(writing, training, training.wish)
        elif training.attempts >= MAX_ATTEMPTS:
            reason = f"{training.attempts} workers ended before its next checkpoint; memory may have run out"
            end(writing, training, "failed", reason)
        else:
            message = f"The worker {training.holder} has ended; the training is queued again."
            change(writing, training, message, state="queued", **_NO_HOLDER)


def _tenants_in_turn(writing: WriteTransaction) -> list[str]:
    connection = writing.connection
    waiting = connection.execute(select(TrainingRow.tenant).where(TrainingRow.state == "queued").distinct()).scalars()
    held = select(TrainingRow.tenant, func.count()).where(TrainingRow.state.in_(_WITH_WORKERS))
    running = {tenant: count for tenant, count in connection.execute(held.group_by(TrainingRow.tenant))}  # noqa: C416
    keys = {}
    for tenant in waiting:
        minutes = minutes_of_a_day(connection, tenant, writing.at)
        limit = require_quotas(connection, tenant).max_training_minutes_per_day
        if limit is None or minutes < limit:
            keys[tenant] = running.get(tenant, 0), minutes, tenant
    return sorted(keys, key=keys.__getitem__)


def renew(  # noqa: PLR0913 - what a worker may report
    writing: WriteTransaction,
    training_id: str,
    holder: str,
    *,
    state: str | None = None,
    progress: Mapping[str, Any] | None = None,
    preflight: Mapping[str, Any] | None = None,
    events: Iterable[NewEvent] = (),
    checkpoint: Reservation | None = None,
    checkpoint_bytes: int = 0,
    seconds: float = 0.0,
) -> str | None:
    """Extends the lease and stores what the worker reports; returns the wish of the training's owner.

    `seconds` is the time since the last call. A checkpoint replaces the one before.
    """
    training = _held(writing.connection, training_id, holder)
    if state not in (None, *_WITH_WORKERS):
        raise InvalidRecord(f"the state {state!r} is not one of a training that a worker has")
    values: dict[str, Any] = {"lease_expires_at": writing.at + LEASE, "seconds": training.seconds + seconds}
    given = {"progress": progress, "preflight": preflight}
    values |= {name: dict(value) for name, value in given.items() if value is not None}
    if checkpoint is not None:
        consume(writing.connection, checkpoint)
        values |= {"checkpoint_digest": checkpoint.digest, "checkpoint_bytes": checkpoint_bytes, "attempts": 1}
    message = None
    if state not in (None, training.state):
        values["state"] = state
        message = f"The training is {state}."
    change(writing, training, message, **values)
    record(writing, training_id, events)
    return training.wish


def settle(  # noqa: PLR0913 - how a training may end
    writing: WriteTransaction,
    training_id: str,
    holder: str,
    *,
    state: str,
    reason: str | None = None,
    metrics: Mapping[str, float] | None = None,
    report: str | None = None,
    artifact: Reservation | None = None,
    artifact_bytes: int = 0,
    seconds: float = 0.0,
) -> None:
    """Ends a worker's hold: the training is `paused`, `cancelled`, `failed`, or with an artifact `publishing`."""
    training = _held(writing.connection, training_id, holder)
    training = change(writing, training, seconds=training.seconds + seconds)
    if state in ("paused", "cancelled"):
        grant(writing, training, "pause" if state == "paused" else "cancel")
    elif state == "failed":
        end(writing, training, "failed", reason)
    elif state == "publishing" and artifact is not None:
        consume(writing.connection, artifact)
        results = {"metrics": dict(metrics or {}), "report": report}
        bytes_ = {"artifact_digest": artifact.digest, "artifact_bytes": artifact_bytes}
        message = "The training is complete; its adapter is being published."
        change(writing, training, message, state=state, wish=None, attempts=0, **results, **bytes_, **_NO_HOLDER)
    else:
        raise InvalidRecord(f"a worker cannot end a training in the state {state!r}")


def release(writing: WriteTransaction, training_id: str, holder: str, seconds: float = 0.0) -> None:
    """Queues the training again, because its worker stops. This does not count as an attempt."""
    training = _held(writing.connection, training_id, holder)
    training = change(writing, training, seconds=training.seconds + seconds, attempts=max(training.attempts - 1, 0))
    if training.wish is not None:
        grant(writing, training, training.wish)
        return
    message = f"The worker {holder} stops; the training is queued again."
    change(writing, training, message, state="queued", **_NO_HOLDER)


def claim_publishing(writing: WriteTransaction, replica: str) -> Training | None:
    """Gives a trained adapter that nobody is publishing to a replica of the server; the oldest first."""
    free = (TrainingRow.lease_expires_at.is_(None)) | (TrainingRow.lease_expires_at <= writing.at)
    waiting = select_trainings().where(TrainingRow.state == "publishing", free).order_by(TrainingRow.created_at)
    row = writing.connection.execute(waiting.limit(1)).one_or_none()
    if row is None:
        return None
    return change(writing, training_of(row), holder=replica, lease_expires_at=writing.at + LEASE)


def publish_done(
    writing: WriteTransaction, training_id: str, replica: str, adapter: str | None, reason: str | None
) -> None:
    """Ends a training whose adapter is published as `adapter`, or refused for a reason. Then the artifact is kept, so
    that it can be published once the reason is gone."""
    training = _held(writing.connection, training_id, replica)
    if adapter is None:
        end(writing, training, "failed", f"its adapter cannot be published: {reason}")
    else:
        end(writing, training, "succeeded", None, adapter=adapter, report=None, artifact_digest=None, artifact_bytes=0)


def _held(connection: Connection, training_id: str, holder: str) -> Training:
    """The training that `holder` has. Its lease may have expired, as long as nobody else has taken it."""
    training = find(connection, training_id)
    if training is None or training.holder != holder:
        raise LeaseLost(f"{holder} does not have the training {training_id!r} any more")
    return training
