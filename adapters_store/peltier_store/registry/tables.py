"""The registry's tables. Each change here needs a migration, which `migrations/alembic.ini` says how to make."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# SQLite numbers rows by itself only where the key is a plain INTEGER, which there has 64 bits.
BigKey = BigInteger().with_variant(Integer, "sqlite")
# Marks of columns, in their `info`: the digest of a blob that must be kept, or bytes that count for a tenant's quota. A
# table with such bytes has a column `tenant`, or refers to one table alone, for which the same holds.
IS_BLOB, IS_STORED = "is_blob", "is_stored"
# Marks of tables of extensions, in their `info`: the rows are not part of backups, or are deleted with the version that
# their columns tenant, name and version name. Or a row whose state is running keeps the version `candidate` of its
# adapter_id from deletion, until the next change of its alias stops it with a reason and the time ended_at.
IS_LOCAL, ENDS_WITH_VERSION, ENDS_WITH_ALIAS = "is_local", "ends_with_version", "ends_with_alias"


class UtcDateTime(TypeDecorator[datetime]):
    """A moment with its time zone, stored as UTC in a column without time zones."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


class Base(DeclarativeBase):
    """The schema that migrations are compared with. Constraints have names so that a migration can drop them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class RevisionRow(Base):
    """The single row that every writing transaction increments first. `registry_id` is unique to this registry."""

    __tablename__ = "revision"

    id: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger)
    registry_id: Mapped[str] = mapped_column(Text)


class ChangeRow(Base):
    """The random id of one of the last changes. A copy of the database that goes on by itself makes other ids."""

    __tablename__ = "changes"

    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    id: Mapped[str] = mapped_column(Text)


class TenantRow(Base):
    """A tenant and its quotas. `revision` is that of its last change."""

    __tablename__ = "tenants"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    revision: Mapped[int] = mapped_column(BigInteger, index=True)
    requests_per_second: Mapped[float | None]
    tokens_per_second: Mapped[float | None]
    max_concurrent_requests: Mapped[int | None] = mapped_column(BigInteger)
    max_stored_bytes: Mapped[int | None] = mapped_column(BigInteger)
    max_adapters: Mapped[int | None] = mapped_column(BigInteger)
    max_trainings: Mapped[int | None] = mapped_column(BigInteger)
    max_training_rows: Mapped[int | None] = mapped_column(BigInteger)
    max_training_minutes_per_day: Mapped[float | None]
    weight: Mapped[float]


class KeyRow(Base):
    """An API key, expired and revoked ones too. `revision` is that of its last change."""

    __tablename__ = "keys"

    prefix: Mapped[str] = mapped_column(Text, primary_key=True)
    tenant: Mapped[str] = mapped_column(ForeignKey(TenantRow.name), index=True)
    digest: Mapped[str] = mapped_column(Text)
    scopes: Mapped[list[str]] = mapped_column(JSON)
    note: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(Text)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revision: Mapped[int] = mapped_column(BigInteger, index=True)


class AdapterRow(Base):
    """A tenant's name for an adapter. It outlives its versions, because version numbers are never reused.

    `revision` is that of its last change, or of its versions' or aliases'. Without `pinned_at` it is not pinned.
    """

    __tablename__ = "adapters"
    __table_args__ = (UniqueConstraint("tenant", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(ForeignKey(TenantRow.name))
    name: Mapped[str] = mapped_column(Text)
    last_number: Mapped[int]
    is_public: Mapped[bool]
    revision: Mapped[int] = mapped_column(BigInteger, index=True)
    pinned_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    pinned_by: Mapped[str | None] = mapped_column(Text)


class VersionRow(Base):
    """One version, live or deleted; a purged one has no row.

    `revision` is the one in which it last became live. Replicas that have seen it have read the manifest.
    """

    __tablename__ = "versions"

    adapter_id: Mapped[int] = mapped_column(ForeignKey(AdapterRow.id), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(Text, index=True, info={IS_BLOB: True})
    size_bytes: Mapped[int] = mapped_column(BigInteger, info={IS_STORED: True})
    preset: Mapped[str] = mapped_column(Text)
    manifest: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(Text)
    deprecated_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    deprecation: Mapped[str | None] = mapped_column(Text)
    deleted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revision: Mapped[int] = mapped_column(BigInteger)


Index(
    "uq_versions_live",
    VersionRow.adapter_id,
    VersionRow.digest,
    unique=True,
    sqlite_where=VersionRow.deleted_at.is_(None),
    postgresql_where=VersionRow.deleted_at.is_(None),
)


class ReportRow(Base):
    """The report of a version's training, as JSON in `size_bytes` bytes of UTF-8. It ends with its version."""

    __tablename__ = "reports"
    __table_args__ = (
        ForeignKeyConstraint(["adapter_id", "number"], ["versions.adapter_id", "versions.number"], ondelete="CASCADE"),
    )

    adapter_id: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    report: Mapped[str] = mapped_column(Text)
    size_bytes: Mapped[int] = mapped_column(BigInteger, info={IS_STORED: True})


class AliasRow(Base):
    """A present or past state of an alias. Without a split the alias was deleted. A rollback restores `previous_id`."""

    __tablename__ = "aliases"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    adapter_id: Mapped[int] = mapped_column(ForeignKey(AdapterRow.id))
    alias: Mapped[str] = mapped_column(Text)
    split: Mapped[dict[str, float] | None] = mapped_column(JSON(none_as_null=True))
    previous_id: Mapped[int | None] = mapped_column(ForeignKey("aliases.id"), type_=BigKey)
    is_current: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(Text)


Index("ix_aliases_history", AliasRow.adapter_id, AliasRow.alias, AliasRow.id)
Index(
    "uq_aliases_current",
    AliasRow.adapter_id,
    AliasRow.alias,
    unique=True,
    sqlite_where=AliasRow.is_current,
    postgresql_where=AliasRow.is_current,
)


class AuditRow(Base):
    """Who did what; written in the transaction that did it and never changed."""

    __tablename__ = "audit"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    tenant: Mapped[str] = mapped_column(Text, index=True)
    actor: Mapped[str] = mapped_column(Text)
    action: Mapped[str] = mapped_column(Text)
    subject: Mapped[str] = mapped_column(Text)
    detail: Mapped[dict[str, Any]] = mapped_column(JSON)


class ReservationRow(Base):
    """A running upload, whose bytes must not be collected."""

    __tablename__ = "reservations"

    token: Mapped[str] = mapped_column(Text, primary_key=True)
    digest: Mapped[str] = mapped_column(Text, index=True)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)


class CollectionRow(Base):
    """A blob that a collector is deleting, so that no upload may store it meanwhile."""

    __tablename__ = "collections"

    digest: Mapped[str] = mapped_column(Text, primary_key=True)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
