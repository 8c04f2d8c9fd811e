"""Reads and changes the rows of trainings, and their logs."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Subquery, delete, func, insert, select, update

from peltier_store.registry.extensions.queue import Queue
from peltier_store.registry.extensions.queue_records import (
    FINAL_STATES,
    NewEvent,
    StoredTraining,
    TrainingEventRow,
    TrainingTimeRow,
)
from peltier_store.registry.records import check_text
from peltier_store.registry.transactions import QueueTransaction, WriteTransaction

# Older events of progress and of checkpoints are removed, so that the log of a long training stays bounded.
MAX_EVENTS = 2_000
_REPEATED = ("progress", "checkpoint")
# An hour counts until all of its minutes are 24 hours old.
_COUNTED = timedelta(hours=25)


TRAININGS = Queue(StoredTraining, "training")


def change(
    writing: QueueTransaction, training: StoredTraining, message: str | None = None, **values: Any
) -> StoredTraining:
    """The training, which this transaction has locked, with these values. `message` is a sentence for its log, if its
    state changes."""
    if message is not None:
        record(writing, training.id, [NewEvent("state", message, {"state": values["state"]})])
    return TRAININGS.change(writing, training, **values)


def record(writing: QueueTransaction, training_id: str, events: Iterable[NewEvent]) -> None:
    """Adds entries to the log of a training."""
    rows = []
    for event in events:
        check_text("event", event.message)
        what = {"kind": event.kind, "message": event.message, "data": dict(event.data)}
        rows.append({"training_id": training_id, "at": writing.at, **what})
    if rows:
        writing.connection.execute(insert(TrainingEventRow), rows)
        _shorten(writing.connection, training_id)


def _shorten(connection: Connection, training_id: str) -> None:
    own = TrainingEventRow.training_id == training_id
    newest = select(TrainingEventRow.id).where(own).order_by(TrainingEventRow.id.desc())
    limit = connection.execute(newest.offset(MAX_EVENTS).limit(1)).scalar_one_or_none()
    if limit is not None:
        old = delete(TrainingEventRow).where(own, TrainingEventRow.id <= limit, TrainingEventRow.kind.in_(_REPEATED))
        connection.execute(old)


def spend(writing: WriteTransaction, training: StoredTraining, seconds_so_far: float | None) -> float:
    """Counts the time of a worker for its tenant, and returns the seconds of the training so far.

    A report that is repeated, because its answer was lost, adds nothing.
    """
    seconds = 0.0 if seconds_so_far is None else seconds_so_far - training.seconds
    if seconds <= 0:
        return training.seconds
    hour = writing.at.replace(minute=0, second=0, microsecond=0)
    counted = update(TrainingTimeRow).where(TrainingTimeRow.tenant == training.tenant, TrainingTimeRow.hour == hour)
    added = counted.values(seconds=TrainingTimeRow.seconds + seconds)
    # Writers take turns, so nobody else inserts the row.
    if writing.connection.execute(added).rowcount == 0:
        first = {"tenant": training.tenant, "hour": hour, "seconds": seconds}
        writing.connection.execute(insert(TrainingTimeRow).values(**first))
    return training.seconds + seconds


def minutes_of_a_day(now: datetime) -> Subquery:
    """Selects `tenant` and the `minutes` that workers have spent on its trainings, deleted ones too, in the hours of
    which a part is in the last 24 hours; no row for a tenant without any."""
    row = TrainingTimeRow
    minutes = select(row.tenant, (func.sum(row.seconds) / 60).label("minutes")).where(row.hour > now - _COUNTED)
    return minutes.group_by(row.tenant).subquery()


def find_minutes(connection: Connection, tenant: str, now: datetime) -> float:
    """Those of one tenant."""
    spent = minutes_of_a_day(now)
    return float(connection.execute(select(spent.c.minutes).where(spent.c.tenant == tenant)).scalar() or 0.0)


def forget_minutes(writing: WriteTransaction) -> None:
    """Removes the hours that no longer count."""
    old = TrainingTimeRow.hour <= writing.at - _COUNTED
    writing.connection.execute(delete(TrainingTimeRow).where(old))


def count_unfinished(connection: Connection, tenant: str) -> int:
    """How many trainings of the tenant have not ended."""
    counted = select(func.count()).where(StoredTraining.tenant == tenant, StoredTraining.state.not_in(FINAL_STATES))
    return connection.execute(counted).scalar_one()


def count_states(connection: Connection) -> dict[str, int]:
    """How many trainings there are in each state that is not final."""
    return TRAININGS.count(connection, FINAL_STATES)
