"""The tables of guarded changes and of the answers that wait for feedback."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from peltier_store.registry.tables import (
    ENDS_WITH_ALIAS,
    ENDS_WITH_VERSION,
    IS_LOCAL,
    AdapterRow,
    AliasRow,
    Base,
    BigKey,
    UtcDateTime,
)


class RolloutRow(Base):
    """A guarded change of an alias; `rollout_records.StoredRollout` describes the columns. `change_id` is the change of
    the alias that was the newest one when it had begun."""

    __tablename__ = "rollouts"
    __table_args__ = ({"info": {ENDS_WITH_ALIAS: True}},)

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    adapter_id: Mapped[int] = mapped_column(ForeignKey(AdapterRow.id))
    alias: Mapped[str] = mapped_column(Text)
    change_id: Mapped[int] = mapped_column(ForeignKey(AliasRow.id), type_=BigKey)
    incumbent: Mapped[int]
    candidate: Mapped[int]
    share: Mapped[float | None]
    guard: Mapped[dict[str, Any]] = mapped_column(JSON)
    counts: Mapped[dict[str, Any]] = mapped_column(JSON)
    state: Mapped[str] = mapped_column(Text)
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_by: Mapped[str] = mapped_column(Text)
    ends_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    reason: Mapped[str | None] = mapped_column(Text)
    numbers: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))


Index("ix_rollouts_alias", RolloutRow.adapter_id, RolloutRow.alias, RolloutRow.started_at)
Index(
    "uq_rollouts_running",
    RolloutRow.adapter_id,
    RolloutRow.alias,
    unique=True,
    sqlite_where=RolloutRow.state == "running",
    postgresql_where=RolloutRow.state == "running",
)


class AnswerRow(Base):
    """An answer, kept for feedback; `rollout_records.StoredAnswer` describes the columns."""

    __tablename__ = "answers"
    # Not in backups, because answers are kept for a day.
    __table_args__ = (
        UniqueConstraint("tenant", "request_id", "row"),
        {"info": {IS_LOCAL: True, ENDS_WITH_VERSION: True}},
    )

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    tenant: Mapped[str] = mapped_column(Text)
    request_id: Mapped[str] = mapped_column(Text)
    row: Mapped[int]
    name: Mapped[str] = mapped_column(Text)
    rollout_id: Mapped[str | None] = mapped_column(ForeignKey(RolloutRow.id))
    version: Mapped[int]
    answer: Mapped[str] = mapped_column(Text)
    shadow: Mapped[str | None] = mapped_column(Text)
    text_hash: Mapped[str] = mapped_column(Text)
    answered_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    was_right: Mapped[bool | None]


Index("ix_answers_tenant_id", AnswerRow.tenant, AnswerRow.id)
Index("ix_answers_version", AnswerRow.tenant, AnswerRow.name, AnswerRow.version, AnswerRow.id)


class ReporterRow(Base):
    """A replica that counts answers, and the number of its last report, so that a repeated one adds nothing."""

    __tablename__ = "reporters"
    __table_args__ = ({"info": {IS_LOCAL: True}},)

    replica: Mapped[str] = mapped_column(Text, primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger)
    reported_at: Mapped[datetime] = mapped_column(UtcDateTime)
