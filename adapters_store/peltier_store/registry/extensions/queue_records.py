"""Files, trainings and batches: their tables, whose rows are the records of the first three, and what else callers give
and get."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Text
from sqlalchemy.orm import Mapped, MappedAsDataclass, mapped_column

from peltier_store.registry.records import Reservation
from peltier_store.registry.tables import IS_BLOB, IS_STORED, Base, BigKey, TenantRow, UtcDateTime

# The states of a training. The last three are final.
FINAL_STATES = ("succeeded", "failed", "cancelled")
STATES = ("queued", "running", "paused", "evaluating", "publishing", *FINAL_STATES)
# The states of a batch. The last four are final.
ENDED_BATCHES = ("completed", "failed", "cancelled", "expired")
BATCH_STATES = ("validating", "in_progress", "finalizing", "cancelling", *ENDED_BATCHES)
# The kinds of a training's events.
EVENTS = ("state", "preflight", "progress", "checkpoint", "message")


class StoredFile(MappedAsDataclass, Base, kw_only=True):
    """A tenant's uploaded examples or requests, results of a batch, or with `is_inline` examples of a training. The
    blob is needed as long as the row exists."""

    __tablename__ = "files"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    tenant: Mapped[str] = mapped_column(ForeignKey(TenantRow.name))
    name: Mapped[str] = mapped_column(Text)
    purpose: Mapped[str] = mapped_column(Text)
    digest: Mapped[str] = mapped_column(Text, index=True, info={IS_BLOB: True})
    size_bytes: Mapped[int] = mapped_column(BigInteger, info={IS_STORED: True})
    num_rows: Mapped[int] = mapped_column(BigInteger)
    is_inline: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(Text)


Index("ix_files_tenant_created_at", StoredFile.tenant, StoredFile.created_at)


@dataclass(frozen=True)
class NewFile:
    """Stored, reserved bytes that become a file."""

    reservation: Reservation
    name: str
    size_bytes: int
    num_rows: int


@dataclass(frozen=True)
class IdempotencyKey:
    """A key that a caller has chosen for a request, to repeat it, and the digest of the request."""

    key: str
    digest: str


class IdempotencyKeyRow(Base):
    """What the first request with this key of its tenant created. `digest` is that of the request."""

    __tablename__ = "idempotency_keys"

    tenant: Mapped[str] = mapped_column(ForeignKey(TenantRow.name), primary_key=True)
    key: Mapped[str] = mapped_column(Text, primary_key=True)
    digest: Mapped[str] = mapped_column(Text)
    subject: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


@dataclass(frozen=True)
class TrainingDraft:
    """A training to be created. `request` is what the caller sent without its examples, which are in the files. With
    `owns_files` they are deleted with the training."""

    task: str
    request: Mapping[str, Any]
    train_file_id: str
    validation_file_id: str | None = None
    keep_examples: bool = False
    owns_files: bool = False


class StoredTraining(MappedAsDataclass, Base, kw_only=True):
    """A training with its state, which is one of `STATES`. It is also an entry of the workers' queue.

    While a worker has it, or in the state `publishing` a replica of the server, `holder` is the name of that process
    and `lease_expires_at` the time at which another may take the training. `attempts` counts the workers that began it
    since its newest checkpoint. `seconds` is the time that workers have spent on it. `wish` is what the owner asked
    for and the worker has not done yet: `pause` or `cancel`. The checkpoint and the artifact are blobs. The request has
    `request_bytes` as JSON; three of its names are here too. `preflight` is the report on its rows before the first
    step, `report` that of what was trained, until it is published. In a list the request is empty and the reports are
    None: they may be as large as all labels of a task.
    """

    __tablename__ = "trainings"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    tenant: Mapped[str] = mapped_column(ForeignKey(TenantRow.name))
    task: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(Text, index=True)
    request: Mapped[Mapping[str, Any]] = mapped_column(JSON)
    request_bytes: Mapped[int] = mapped_column(BigInteger, info={IS_STORED: True})
    task_type: Mapped[str | None] = mapped_column(Text)
    preset: Mapped[str | None] = mapped_column(Text)
    recipe: Mapped[str | None] = mapped_column(Text)
    train_file_id: Mapped[str | None] = mapped_column(ForeignKey(StoredFile.id), index=True)
    validation_file_id: Mapped[str | None] = mapped_column(ForeignKey(StoredFile.id), index=True)
    keep_examples: Mapped[bool]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(Text)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    wish: Mapped[str | None] = mapped_column(Text, default=None)
    reason: Mapped[str | None] = mapped_column(Text, default=None)
    progress: Mapped[Mapping[str, Any] | None] = mapped_column(JSON(none_as_null=True), default=None)
    preflight: Mapped[Mapping[str, Any] | None] = mapped_column(JSON(none_as_null=True), default=None)
    metrics: Mapped[Mapping[str, float] | None] = mapped_column(JSON(none_as_null=True), default=None)
    report: Mapped[str | None] = mapped_column(Text, default=None)
    adapter: Mapped[str | None] = mapped_column(Text, default=None)
    seconds: Mapped[float] = mapped_column(default=0.0)
    holder: Mapped[str | None] = mapped_column(Text, default=None)
    lease_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    attempts: Mapped[int] = mapped_column(default=0)
    checkpoint_digest: Mapped[str | None] = mapped_column(Text, index=True, info={IS_BLOB: True}, default=None)
    checkpoint_bytes: Mapped[int] = mapped_column(BigInteger, info={IS_STORED: True}, default=0)
    artifact_digest: Mapped[str | None] = mapped_column(Text, index=True, info={IS_BLOB: True}, default=None)
    artifact_bytes: Mapped[int] = mapped_column(BigInteger, info={IS_STORED: True}, default=0)


Index("ix_trainings_tenant_created_at", StoredTraining.tenant, StoredTraining.created_at)


class TrainingTimeRow(Base):
    """What workers spent on the trainings of a tenant in one hour. It counts for the tenant's minutes of a day, then it
    is purged."""

    __tablename__ = "training_time"

    tenant: Mapped[str] = mapped_column(ForeignKey(TenantRow.name), primary_key=True)
    hour: Mapped[datetime] = mapped_column(UtcDateTime, primary_key=True)
    seconds: Mapped[float]


@dataclass(frozen=True)
class NewEvent:
    """Something that happens to a training: `kind` is one of `EVENTS`, `message` a sentence."""

    kind: str
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredEvent:
    """One entry of a training's log. `id` grows with time."""

    id: int
    at: datetime
    kind: str
    message: str
    data: Mapping[str, Any]


class TrainingEventRow(Base):
    """An entry of a training's log; it ends with the training."""

    __tablename__ = "training_events"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    training_id: Mapped[str] = mapped_column(ForeignKey(StoredTraining.id, ondelete="CASCADE"))
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    kind: Mapped[str] = mapped_column(Text)
    message: Mapped[str] = mapped_column(Text)
    data: Mapped[dict[str, Any]] = mapped_column(JSON)


Index("ix_training_events_training_id", TrainingEventRow.training_id, TrainingEventRow.id)


@dataclass(frozen=True)
class BatchDraft:
    """A batch to be created: what it is to ask of `endpoint`, with the requests in a file."""

    endpoint: str
    input_file_id: str
    completion_window: str
    request_metadata: Mapping[str, str] | None = None


class StoredBatch(MappedAsDataclass, Base, kw_only=True):
    """A batch of requests with its state: one of `BATCH_STATES`. It is also an entry of the servers' queue.

    While a server works on a part of it, `holder` is the name of that process and `lease_expires_at` the time at which
    another may take the batch. `attempts` counts the servers that began since its newest part, and `served_at` is when
    the last one began. `num_completed` and `num_failed` of its `num_lines` lines, the first ones, have results in
    parts or, at the end, in the two files. `errors` say why it failed.
    """

    __tablename__ = "batches"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    tenant: Mapped[str] = mapped_column(ForeignKey(TenantRow.name))
    endpoint: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(Text, index=True)
    input_file_id: Mapped[str] = mapped_column(Text, index=True)
    completion_window: Mapped[str] = mapped_column(Text)
    request_metadata: Mapped[Mapping[str, str] | None] = mapped_column(JSON(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(Text)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    finalizing_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    cancelling_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    served_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    num_lines: Mapped[int] = mapped_column(BigInteger, default=0)
    num_completed: Mapped[int] = mapped_column(BigInteger, default=0)
    num_failed: Mapped[int] = mapped_column(BigInteger, default=0)
    errors: Mapped[Sequence[Mapping[str, Any]] | None] = mapped_column(JSON(none_as_null=True), default=None)
    output_file_id: Mapped[str | None] = mapped_column(Text, default=None)
    error_file_id: Mapped[str | None] = mapped_column(Text, default=None)
    holder: Mapped[str | None] = mapped_column(Text, default=None)
    lease_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    attempts: Mapped[int] = mapped_column(default=0)

    @property
    def num_done(self) -> int:
        """The lines that have results."""
        return self.num_completed + self.num_failed


Index("ix_batches_tenant_created_at", StoredBatch.tenant, StoredBatch.created_at)


@dataclass(frozen=True)
class BatchPart:
    """The results of the lines of a batch from `first_line` on, one after the other. The blob has a line of JSON for
    each, the `num_completed` answers before the `num_failed` errors."""

    first_line: int
    digest: str
    size_bytes: int
    num_completed: int
    num_failed: int


class BatchPartRow(Base):
    """A `BatchPart`, until it is in the files of its batch."""

    __tablename__ = "batch_parts"

    batch_id: Mapped[str] = mapped_column(ForeignKey(StoredBatch.id, ondelete="CASCADE"), primary_key=True)
    first_line: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    digest: Mapped[str] = mapped_column(Text, index=True, info={IS_BLOB: True})
    size_bytes: Mapped[int] = mapped_column(BigInteger, info={IS_STORED: True})
    num_completed: Mapped[int] = mapped_column(BigInteger)
    num_failed: Mapped[int] = mapped_column(BigInteger)
