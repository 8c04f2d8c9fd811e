"""Reads and changes the rows of trainings, and their logs."""

from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, func, insert, select, update

from peltier_store.registry.records import FINAL_STATES, NewEvent, StoredTraining, check_text
from peltier_store.registry.tables import DeletedTrainingRow, TrainingEventRow, TrainingRow
from peltier_store.registry.transactions import QueueTransaction, WriteTransaction

# Older events of progress are removed, so that the log of a long training stays bounded.
MAX_EVENTS = 2_000
_DAY = timedelta(days=1)


def select_trainings() -> Select[*tuple[object, ...]]:
    """Selects every training, for `training_of`."""
    return select(*(getattr(TrainingRow, field.name) for field in fields(StoredTraining)))


def training_of(row: Row[*tuple[object, ...]]) -> StoredTraining:
    return StoredTraining(**row._mapping)


def find(connection: Connection, training_id: str, *, lock: bool = False) -> StoredTraining | None:
    """With `lock` nobody else changes the training before the end of this transaction."""
    wanted = select_trainings().where(TrainingRow.id == training_id)
    row = connection.execute(wanted.with_for_update() if lock else wanted).one_or_none()
    return None if row is None else training_of(row)


def change(
    writing: QueueTransaction, training: StoredTraining, message: str | None = None, **values: Any
) -> StoredTraining:
    """The training, which this transaction has locked, with these values. `message` is a sentence for its log, if its
    state changes."""
    writing.connection.execute(update(TrainingRow).where(TrainingRow.id == training.id).values(**values))
    if message is not None:
        record(writing, training.id, [NewEvent("state", message, {"state": values["state"]})])
    return StoredTraining(**{**vars(training), **values})


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
        old = delete(TrainingEventRow).where(own, TrainingEventRow.id <= limit, TrainingEventRow.kind == "progress")
        connection.execute(old)


def minutes_of_a_day(connection: Connection, tenant: str, now: datetime) -> float:
    """The minutes that workers have spent on trainings of the tenant that began in the last 24 hours, deleted ones
    too."""
    seconds = 0.0
    for row in (TrainingRow, DeletedTrainingRow):
        total = select(func.coalesce(func.sum(row.seconds), 0.0))
        recent = total.where(row.tenant == tenant, row.started_at > now - _DAY)
        seconds += float(connection.execute(recent).scalar_one())
    return seconds / 60


def forget_minutes(writing: WriteTransaction) -> None:
    """Removes what was kept of deleted trainings that began more than 24 hours ago."""
    old = DeletedTrainingRow.started_at <= writing.at - _DAY
    writing.connection.execute(delete(DeletedTrainingRow).where(old))


def count_states(connection: Connection) -> dict[str, int]:
    """How many trainings there are in each state that is not final."""
    counted = select(TrainingRow.state, func.count()).where(TrainingRow.state.not_in(FINAL_STATES))
    return {row[0]: row[1] for row in connection.execute(counted.group_by(TrainingRow.state))}
