"""The registry's tables. Each change here needs a migration, which `migrations/alembic.ini` says how to make."""

from datetime import UTC, datetime

from sqlalchemy import BigInteger, DateTime, Dialect, ForeignKey, MetaData, Text, TypeDecorator, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class UtcDateTime(TypeDecorator[datetime]):
    """A moment with its time zone, kept as UTC in a database that knows no time zones."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


class Base(DeclarativeBase):
    """What the migrations are compared with; named constraints are what lets a later one drop them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class AdapterRow(Base):
    """A tenant's name for an adapter. It outlives its versions, because `last_number` may never be given out again."""

    __tablename__ = "adapters"
    __table_args__ = (UniqueConstraint("tenant", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(Text)
    name: Mapped[str] = mapped_column(Text)
    last_number: Mapped[int]


class VersionRow(Base):
    """One live version; a deleted one has no row."""

    __tablename__ = "versions"
    __table_args__ = (UniqueConstraint("adapter_id", "digest"),)

    adapter_id: Mapped[int] = mapped_column(ForeignKey(AdapterRow.id), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(Text)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    preset: Mapped[str] = mapped_column(Text)
    manifest: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
