"""What the owner of trainings does: creates, finds, pauses, resumes, cancels and deletes them."""

import json
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, fields
from itertools import chain
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, delete, insert, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute

from peltier_store.registry.errors import (
    InvalidRecord,
    RegistryConflict,
    TrainingTooLarge,
    TrainingUnknown,
    TrainingWaits,
)
from peltier_store.registry.extensions.files import find_file, forget_file
from peltier_store.registry.extensions.idempotency import find_repeated, keep
from peltier_store.registry.extensions.queue import NO_HOLDER, follow
from peltier_store.registry.extensions.queue_records import (
    FINAL_STATES,
    STATES,
    IdempotencyKey,
    NewEvent,
    StoredEvent,
    StoredFile,
    StoredTraining,
    TrainingDraft,
    TrainingEventRow,
)
from peltier_store.registry.extensions.training_state import TRAININGS, change, count_unfinished, find_minutes, record
from peltier_store.registry.records import check_name, check_text
from peltier_store.registry.tenants import require_quotas, require_room_for_bytes
from peltier_store.registry.transactions import WriteTransaction

T = TypeVar("T")

# Trainings that have not ended, of a tenant whose quotas name no other number.
MAX_TRAININGS = 100
_WAITING = ("queued", "paused")
_UNLISTED = ("request", "preflight", "report")


def find_repeated_own(connection: Connection, tenant: str, key: IdempotencyKey | None) -> StoredTraining | None:
    repeated = find_repeated(connection, tenant, key)
    return None if repeated is None else find_own(connection, tenant, repeated)


def create(
    writing: WriteTransaction, tenant: str, draft: TrainingDraft, key: IdempotencyKey | None = None
) -> StoredTraining:
    """Puts a training into the queue, unless the request with this key has done so."""
    if (repeated := find_repeated_own(writing.connection, tenant, key)) is not None:
        return repeated
    training = _create(writing, tenant, draft)
    keep(writing, tenant, key, training.id)
    return training


def _create(writing: WriteTransaction, tenant: str, draft: TrainingDraft) -> StoredTraining:
    check_name("task", draft.task)
    for text in _texts_in(draft.request):
        check_text("text of the request", text)
    files = _files_of(writing.connection, tenant, draft)
    request_bytes = len(json.dumps(draft.request).encode())
    _require_room(writing, tenant, files)
    require_room_for_bytes(writing.connection, require_quotas(writing.connection, tenant), tenant, request_bytes)
    _check_owners(writing.connection, files, owns_files=draft.owns_files)
    if draft.owns_files:
        own = StoredFile.id.in_([file.id for file in files])
        writing.connection.execute(update(StoredFile).where(own).values(is_inline=True))
    training = StoredTraining(
        id=f"trn_{secrets.token_hex(12)}",
        tenant=tenant,
        task=draft.task,
        state="queued",
        request=dict(draft.request),
        request_bytes=request_bytes,
        task_type=draft.request.get("task_type"),
        preset=draft.request.get("preset"),
        recipe=draft.request.get("recipe"),
        train_file_id=draft.train_file_id,
        validation_file_id=draft.validation_file_id,
        keep_examples=draft.keep_examples,
        size_bytes=sum(file.size_bytes for file in files),
        created_at=writing.at,
        created_by=writing.actor,
    )
    writing.connection.execute(insert(StoredTraining).values(asdict(training)))
    record(writing, training.id, [NewEvent("state", "The training is queued.", {"state": "queued"})])
    writing.audit(tenant, "create_training", training.id, task=draft.task)
    return training


def _texts_in(value: object) -> Iterator[str]:
    """Every text of a value of JSON, and every name in it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from chain.from_iterable(map(_texts_in, (*value, *value.values())))
    elif isinstance(value, list):
        yield from chain.from_iterable(map(_texts_in, value))


def _files_of(connection: Connection, tenant: str, training: TrainingDraft | StoredTraining) -> list[StoredFile]:
    ids = [one for one in (training.train_file_id, training.validation_file_id) if one is not None]
    return [find_file(connection, tenant, one) for one in ids]


def _check_owners(connection: Connection, files: Collection[StoredFile], *, owns_files: bool) -> None:
    """Raises a `RegistryConflict` if another training has a file that it owns, or that the new one is to own."""
    for file in files:
        uses = or_(StoredTraining.train_file_id == file.id, StoredTraining.validation_file_id == file.id)
        other = connection.execute(select(StoredTraining.id).where(uses).limit(1)).scalar()
        if other is not None and (owns_files or file.is_inline):
            raise RegistryConflict(f"the file {file.id!r} of the training {other!r} is not for another training too")


def _require_room(writing: WriteTransaction, tenant: str, files: Collection[StoredFile]) -> None:
    """Raises QuotaReached if a training of these files may not be queued: first if it never may."""
    limit, rows = require_quotas(writing.connection, tenant).max_training_rows, sum(file.num_rows for file in files)
    if limit is not None and rows > limit:
        raise TrainingTooLarge(
            f"the training has {rows} examples, and a training of tenant {tenant!r} may have {limit}"
        )
    _require_place(writing.connection, tenant)
    _require_minutes(writing, tenant)


def _require_place(connection: Connection, tenant: str) -> None:
    limit, count = require_quotas(connection, tenant).max_trainings, count_unfinished(connection, tenant)
    if count >= (limit := MAX_TRAININGS if limit is None else limit):
        raise TrainingWaits(
            f"tenant {tenant!r} has {count} trainings that have not ended and may have {limit}; wait for one or cancel "
            "it"
        )


def _require_minutes(writing: WriteTransaction, tenant: str) -> None:
    limit = require_quotas(writing.connection, tenant).max_training_minutes_per_day
    minutes = find_minutes(writing.connection, tenant, writing.at)
    if limit is not None and minutes >= limit:
        raise TrainingWaits(
            f"tenant {tenant!r} has trained {minutes:.1f} minutes in the last 24 hours and may train {limit:g}"
        )


def list_trainings(
    connection: Connection, tenant: str, *, states: Collection[str] = (), limit: int = 100, after: str | None = None
) -> list[StoredTraining]:
    """At most `limit` trainings in one of `states` (none: in any), newest first, that follow the training `after`;
    without their requests and reports.

    Raises TrainingUnknown for that one, or InvalidRecord for a state that does not exist.
    """
    if unknown := set(states) - set(STATES):
        raise InvalidRecord(f"the state {min(unknown)!r} is unknown; it is one of {', '.join(STATES)}")
    listed = [column for column in StoredTraining.__table__.columns if column.name not in _UNLISTED]
    wanted = select(*listed).where(StoredTraining.tenant == tenant)
    if states:
        wanted = wanted.where(StoredTraining.state.in_(states))
    if after is not None:
        begun = _read_own(connection, tenant, after, StoredTraining.created_at)
        wanted = follow(wanted, StoredTraining, begun, after)
    ordered = wanted.order_by(StoredTraining.created_at.desc(), StoredTraining.id.desc()).limit(limit)
    return [StoredTraining(request={}, **row._mapping) for row in connection.execute(ordered)]


def read_requests(connection: Connection, tenant: str, ids: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """The requests of those of these trainings that still exist."""
    wanted = select(StoredTraining.id, StoredTraining.request).where(
        StoredTraining.tenant == tenant, StoredTraining.id.in_(ids)
    )
    return {row.id: row.request for row in connection.execute(wanted)}


def find_state(connection: Connection, tenant: str, training_id: str) -> str:
    """One of `STATES`. Raises TrainingUnknown."""
    return _read_own(connection, tenant, training_id, StoredTraining.state)


def _read_own(connection: Connection, tenant: str, training_id: str, column: InstrumentedAttribute[T]) -> T:
    wanted = select(column).where(StoredTraining.tenant == tenant, StoredTraining.id == training_id)
    row = connection.execute(wanted).one_or_none()
    if row is None:
        raise _unknown(tenant, training_id)
    return row[0]


def _unknown(tenant: str, training_id: str) -> TrainingUnknown:
    return TrainingUnknown(f"tenant {tenant!r} has no training {training_id!r}")


def find_own(connection: Connection, tenant: str, training_id: str, *, lock: bool = False) -> StoredTraining:
    """Raises TrainingUnknown."""
    training = TRAININGS.find(connection, training_id, lock=lock)
    if training is None or training.tenant != tenant:
        raise _unknown(tenant, training_id)
    return training


def list_events(
    connection: Connection, tenant: str, training_id: str, *, after: int = 0, limit: int = 1000
) -> list[StoredEvent]:
    """At most `limit` entries of a training's log that follow the entry `after`, oldest first. Raises
    TrainingUnknown."""
    wanted = _select_events(connection, tenant, training_id).where(TrainingEventRow.id > after)
    return _events(connection, wanted.order_by(TrainingEventRow.id).limit(limit))


def list_last_events(
    connection: Connection, tenant: str, training_id: str, *, before: int | None, limit: int
) -> list[StoredEvent]:
    """At most `limit` entries of a training's log that precede the entry `before`, newest first. Raises
    TrainingUnknown."""
    wanted = _select_events(connection, tenant, training_id)
    if before is not None:
        wanted = wanted.where(TrainingEventRow.id < before)
    return _events(connection, wanted.order_by(TrainingEventRow.id.desc()).limit(limit))


def _select_events(connection: Connection, tenant: str, training_id: str) -> Select[Any]:
    find_state(connection, tenant, training_id)
    columns = (getattr(TrainingEventRow, field.name) for field in fields(StoredEvent))
    return select(*columns).where(TrainingEventRow.training_id == training_id)


def _events(connection: Connection, wanted: Select[Any]) -> list[StoredEvent]:
    return [StoredEvent(**row._mapping) for row in connection.execute(wanted)]


def pause(writing: WriteTransaction, tenant: str, training_id: str) -> StoredTraining:
    training = find_own(writing.connection, tenant, training_id, lock=True)
    if training.state == "paused":
        return training
    if training.state == "queued":
        return _audited(
            writing, change(writing, training, "The training is paused.", state="paused", reason=None), "pause_training"
        )
    if training.state != "running":
        raise RegistryConflict(
            f"the training {training_id!r} is {training.state}; only a queued or running one can pause"
        )
    return _wish(writing, training, "pause")


def resume(writing: WriteTransaction, tenant: str, training_id: str) -> StoredTraining:
    """A training that failed after its last step, because its adapter could not be published, is published again. A
    failed one needs room as a new one, a paused one has it."""
    training = find_own(writing.connection, tenant, training_id, lock=True)
    if training.wish == "pause":
        return _audited(writing, change(writing, training, wish=None), "resume_training")
    if training.state not in ("paused", "failed"):
        raise RegistryConflict(
            f"the training {training_id!r} is {training.state}; only a paused or failed one can resume"
        )
    if training.state == "failed" and training.train_file_id is None and training.artifact_digest is None:
        raise RegistryConflict(f"the training {training_id!r} cannot resume: its examples are deleted")
    if training.state == "failed" and training.artifact_digest is None:
        _require_room(writing, tenant, _files_of(writing.connection, tenant, training))
    elif training.state == "failed":
        _require_place(writing.connection, tenant)
    state = "queued" if training.artifact_digest is None else "publishing"
    message = f"The training is {state} again."
    changed = change(
        writing, training, message, state=state, reason=None, finished_at=None, attempts=0, lease_expires_at=None
    )
    return _audited(writing, changed, "resume_training")


def cancel(writing: WriteTransaction, tenant: str, training_id: str) -> StoredTraining:
    training = find_own(writing.connection, tenant, training_id, lock=True)
    if training.state == "cancelled":
        return training
    if training.state in FINAL_STATES or training.state == "publishing":
        raise RegistryConflict(f"the training {training_id!r} is {training.state}, so it cannot be cancelled")
    if training.state in _WAITING:
        return _audited(writing, end(writing, training, "cancelled", "its owner cancelled it"), "cancel_training")
    return _wish(writing, training, "cancel")


def _wish(writing: WriteTransaction, training: StoredTraining, wish: str) -> StoredTraining:
    if training.wish in (wish, "cancel"):
        return training
    is_held = training.lease_expires_at is not None and training.lease_expires_at > writing.at
    # Else its worker is dead.
    wished = change(writing, training, wish=wish) if is_held else grant(writing, training, wish)
    return _audited(writing, wished, f"{wish}_training")


def grant(writing: WriteTransaction, training: StoredTraining, wish: str) -> StoredTraining:
    """Does what the owner of a running training wished, once no worker has it."""
    if wish == "cancel":
        return end(writing, training, "cancelled", "its owner cancelled it")
    return change(writing, training, "The training is paused.", state="paused", wish=None, **NO_HOLDER)


def end(
    writing: WriteTransaction, training: StoredTraining, state: str, reason: str | None, **values: object
) -> StoredTraining:
    """Ends a training. Examples that were sent with it are deleted, unless it can be resumed or they are kept."""
    message = f"The training {_PAST[state]}" + ("." if reason is None else f": {reason}.")
    final = {"state": state, "reason": reason, "finished_at": writing.at, "wish": None}
    ended = change(writing, training, message, **{**final, **NO_HOLDER, **values})
    if state != "failed":
        change(writing, ended, checkpoint_digest=None, checkpoint_bytes=0)
        if not training.keep_examples:
            _forget_inline_files(writing, ended)
    found = TRAININGS.find(writing.connection, training.id)
    assert found is not None
    return found


_PAST = {"succeeded": "has succeeded", "failed": "has failed", "cancelled": "is cancelled"}


def remove(writing: WriteTransaction, tenant: str, training_id: str) -> None:
    """Deletes an ended training with its log, its checkpoint and the examples that were sent with it. The time that
    workers spent on it still counts for the quota."""
    training = find_own(writing.connection, tenant, training_id, lock=True)
    if training.state not in FINAL_STATES:
        raise RegistryConflict(f"the training {training_id!r} is {training.state}; cancel it before you delete it")
    _forget_inline_files(writing, training)
    events = delete(TrainingEventRow).where(TrainingEventRow.training_id == training_id)
    writing.connection.execute(events)
    writing.connection.execute(delete(StoredTraining).where(StoredTraining.id == training_id))
    writing.audit(tenant, "delete_training", training_id, task=training.task)


def _forget_inline_files(writing: WriteTransaction, training: StoredTraining) -> None:
    ids = [one for one in (training.train_file_id, training.validation_file_id) if one is not None]
    inline = select(StoredFile.id).where(StoredFile.id.in_(ids), StoredFile.is_inline)
    for file_id in list(writing.connection.execute(inline).scalars()):
        forget_file(writing.connection, file_id)


def _audited(writing: WriteTransaction, training: StoredTraining, action: str) -> StoredTraining:
    writing.audit(training.tenant, action, training.id)
    return training
