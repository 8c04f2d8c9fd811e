"""Tables of files and trainings, and of batches of requests in files."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Text
from sqlalchemy.orm import Mapped, mapped_column

from peltier_store.registry.tables import IS_BLOB, IS_STORED, Base, BigKey, TenantRow, UtcDateTime


class FileRow(Base):
    """Examples for trainings, or requests or results of batches. The blob is needed as long as the row exists."""

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


Index("ix_files_tenant_created_at", FileRow.tenant, FileRow.created_at)


class TrainingRow(Base):
    """A training, which is also an entry of the workers' queue; `queue_records.Training` describes the columns."""

    __tablename__ = "trainings"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    tenant: Mapped[str] = mapped_column(ForeignKey(TenantRow.name))
    task: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(Text, index=True)
    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    request_bytes: Mapped[int] = mapped_column(BigInteger, info={IS_STORED: True})
    task_type: Mapped[str | None] = mapped_column(Text)
    preset: Mapped[str | None] = mapped_column(Text)
    recipe: Mapped[str | None] = mapped_column(Text)
    train_file_id: Mapped[str | None] = mapped_column(ForeignKey(FileRow.id), index=True)
    validation_file_id: Mapped[str | None] = mapped_column(ForeignKey(FileRow.id), index=True)
    keep_examples: Mapped[bool]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(Text)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    wish: Mapped[str | None] = mapped_column(Text)
    reason: Mapped[str | None] = mapped_column(Text)
    progress: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    preflight: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    metrics: Mapped[dict[str, float] | None] = mapped_column(JSON(none_as_null=True))
    report: Mapped[str | None] = mapped_column(Text)
    adapter: Mapped[str | None] = mapped_column(Text)
    seconds: Mapped[float]
    holder: Mapped[str | None] = mapped_column(Text)
    lease_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    attempts: Mapped[int]
    checkpoint_digest: Mapped[str | None] = mapped_column(Text, index=True, info={IS_BLOB: True})
    checkpoint_bytes: Mapped[int] = mapped_column(BigInteger, info={IS_STORED: True})
    artifact_digest: Mapped[str | None] = mapped_column(Text, index=True, info={IS_BLOB: True})
    artifact_bytes: Mapped[int] = mapped_column(BigInteger, info={IS_STORED: True})


Index("ix_trainings_tenant_created_at", TrainingRow.tenant, TrainingRow.created_at)


class IdempotencyKeyRow(Base):
    """What the first request with this key of its tenant created. `digest` is that of the request."""

    __tablename__ = "idempotency_keys"

    tenant: Mapped[str] = mapped_column(ForeignKey(TenantRow.name), primary_key=True)
    key: Mapped[str] = mapped_column(Text, primary_key=True)
    digest: Mapped[str] = mapped_column(Text)
    subject: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class TrainingTimeRow(Base):
    """What workers spent on the trainings of a tenant in one hour. It counts for the tenant's minutes of a day, then it
    is purged."""

    __tablename__ = "training_time"

    tenant: Mapped[str] = mapped_column(ForeignKey(TenantRow.name), primary_key=True)
    hour: Mapped[datetime] = mapped_column(UtcDateTime, primary_key=True)
    seconds: Mapped[float]


class BatchRow(Base):
    """A batch of requests in a file, which is also an entry of the servers' queue; `queue_records.StoredBatch`
    describes the columns."""

    __tablename__ = "batches"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    tenant: Mapped[str] = mapped_column(ForeignKey(TenantRow.name))
    endpoint: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(Text, index=True)
    input_file_id: Mapped[str] = mapped_column(Text, index=True)
    completion_window: Mapped[str] = mapped_column(Text)
    request_metadata: Mapped[dict[str, str] | None] = mapped_column(JSON(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(Text)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finalizing_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    cancelling_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    served_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    num_lines: Mapped[int] = mapped_column(BigInteger)
    num_completed: Mapped[int] = mapped_column(BigInteger)
    num_failed: Mapped[int] = mapped_column(BigInteger)
    errors: Mapped[list[dict[str, Any]] | None] = mapped_column(JSON(none_as_null=True))
    output_file_id: Mapped[str | None] = mapped_column(Text)
    error_file_id: Mapped[str | None] = mapped_column(Text)
    holder: Mapped[str | None] = mapped_column(Text)
    lease_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    attempts: Mapped[int]


Index("ix_batches_tenant_created_at", BatchRow.tenant, BatchRow.created_at)


class BatchPartRow(Base):
    """The results of consecutive lines of a batch, until they are in its files. The blob has a line of JSON for each,
    the `num_completed` answers before the `num_failed` errors."""

    __tablename__ = "batch_parts"

    batch_id: Mapped[str] = mapped_column(ForeignKey(BatchRow.id, ondelete="CASCADE"), primary_key=True)
    first_line: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    digest: Mapped[str] = mapped_column(Text, index=True, info={IS_BLOB: True})
    size_bytes: Mapped[int] = mapped_column(BigInteger, info={IS_STORED: True})
    num_completed: Mapped[int] = mapped_column(BigInteger)
    num_failed: Mapped[int] = mapped_column(BigInteger)


class TrainingEventRow(Base):
    """An entry of a training's log; it ends with the training."""

    __tablename__ = "training_events"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    training_id: Mapped[str] = mapped_column(ForeignKey(TrainingRow.id, ondelete="CASCADE"))
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    kind: Mapped[str] = mapped_column(Text)
    message: Mapped[str] = mapped_column(Text)
    data: Mapped[dict[str, Any]] = mapped_column(JSON)


Index("ix_training_events_training_id", TrainingEventRow.training_id, TrainingEventRow.id)
