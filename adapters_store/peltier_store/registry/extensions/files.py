"""Files of examples, and of requests and results of batches. The bytes are a blob, and are kept as long as the file
has a row."""

import secrets
from collections.abc import Collection
from dataclasses import asdict, fields
from datetime import timedelta

from sqlalchemy import Connection, Row, Select, delete, insert, or_, select, update

from peltier_store.registry.claims import consume
from peltier_store.registry.errors import FileUnknown, RegistryConflict
from peltier_store.registry.extensions.queue import follow
from peltier_store.registry.extensions.queue_records import ENDED_BATCHES, FINAL_STATES, NewFile, StoredFile
from peltier_store.registry.extensions.queue_tables import BatchRow, FileRow, TrainingRow
from peltier_store.registry.records import Reservation, check_text
from peltier_store.registry.tenants import require_quotas, require_room_for_bytes
from peltier_store.registry.transactions import Transactions, WriteTransaction

# How long a server may take from storing the examples of a training to creating it.
_MAX_CREATING = timedelta(hours=1)


class FileRegistry:
    """Files of a registry's tenants. Each failure is a RegistryError of one sentence."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def add(  # noqa: PLR0913 - what a file is
        self,
        tenant: str,
        reservation: Reservation,
        *,
        name: str,
        purpose: str,
        size_bytes: int,
        num_rows: int,
        is_inline: bool = False,
        actor: str,
    ) -> StoredFile:
        """Records stored, reserved bytes as a new file; the reservation ends.

        Raises TenantUnknown, QuotaReached, InvalidRecord for an invalid name, or BlobBusy if the reservation is gone.
        """

        def work(writing: WriteTransaction) -> StoredFile:
            file = StoredFile(
                _new_id(),
                tenant,
                name,
                purpose,
                reservation.digest,
                size_bytes,
                num_rows,
                is_inline,
                writing.at,
                actor,
            )
            return _add(writing, file, reservation)

        return await self._transactions.write(actor, work)

    async def require_room(self, tenant: str, size_bytes: int) -> None:
        """Raises TenantUnknown, or QuotaReached if `add` would refuse so many bytes now."""
        await self._transactions.read(lambda connection: _require_room(connection, tenant, size_bytes))

    async def find(self, tenant: str, file_id: str, *, purposes: Collection[str] | None = None) -> StoredFile:
        """A file of one of these purposes. Raises FileUnknown."""
        return await self._transactions.read(lambda connection: find_file(connection, tenant, file_id, purposes))

    async def remove(self, tenant: str, file_id: str, *, actor: str) -> None:
        """Deletes a file. Raises FileUnknown, or RegistryConflict if a training or a batch that has not ended needs
        it."""
        await self._transactions.write(actor, lambda writing: _remove(writing, tenant, file_id))

    async def list(
        self, tenant: str, *, purposes: Collection[str] | None = None, limit: int = 100, after: str | None = None
    ) -> list[StoredFile]:
        """At most `limit` files of these purposes, newest first, that follow the file `after`, which is one of them.
        Raises FileUnknown for that one."""
        return await self._transactions.read(lambda connection: _list(connection, tenant, purposes, limit, after))


def find_file(connection: Connection, tenant: str, file_id: str, purposes: Collection[str] | None = None) -> StoredFile:
    """A file of one of these purposes, by default of any. Raises FileUnknown."""
    row = connection.execute(_select(tenant).where(FileRow.id == file_id)).one_or_none()
    if row is None or (purposes is not None and row.purpose not in purposes):
        raise FileUnknown(f"tenant {tenant!r} has no file {file_id!r}")
    return _file_of(row)


def forget_file(connection: Connection, file_id: str) -> None:
    """Deletes the row of a file, and the references of trainings to it."""
    for column in (TrainingRow.train_file_id, TrainingRow.validation_file_id):
        connection.execute(update(TrainingRow).where(column == file_id).values({column.key: None}))
    connection.execute(delete(FileRow).where(FileRow.id == file_id))


def forget_abandoned(writing: WriteTransaction) -> None:
    """Deletes examples that were sent with a training which was never created, because the server died before."""
    used = select(TrainingRow.id).where(
        or_(TrainingRow.train_file_id == FileRow.id, TrainingRow.validation_file_id == FileRow.id)
    )
    old = FileRow.created_at < writing.at - _MAX_CREATING
    writing.connection.execute(delete(FileRow).where(FileRow.is_inline, old, ~used.exists()))


def add_result(writing: WriteTransaction, tenant: str, purpose: str, new: NewFile, *, created_by: str) -> str:
    """Records a file that the server has made, whatever the tenant has stored; returns its id."""
    digest = new.reservation.digest
    file = StoredFile(
        _new_id(), tenant, new.name, purpose, digest, new.size_bytes, new.num_rows, False, writing.at, created_by
    )
    return _insert(writing, file, new.reservation).id


def _new_id() -> str:
    return f"file-{secrets.token_hex(12)}"


def _add(writing: WriteTransaction, file: StoredFile, reservation: Reservation) -> StoredFile:
    check_text("file name", file.name)
    check_text("purpose", file.purpose)
    _require_room(writing.connection, file.tenant, file.size_bytes)
    return _insert(writing, file, reservation)


def _insert(writing: WriteTransaction, file: StoredFile, reservation: Reservation) -> StoredFile:
    consume(writing.connection, reservation)
    writing.connection.execute(insert(FileRow).values(asdict(file)))
    writing.audit(file.tenant, "create_file", file.id, name=file.name, size_bytes=file.size_bytes)
    return file


def _require_room(connection: Connection, tenant: str, size_bytes: int) -> None:
    require_room_for_bytes(connection, require_quotas(connection, tenant), tenant, size_bytes)


def _list(
    connection: Connection, tenant: str, purposes: Collection[str] | None, limit: int, after: str | None
) -> list[StoredFile]:
    wanted = _select(tenant).where(~FileRow.is_inline).order_by(FileRow.created_at.desc(), FileRow.id.desc())
    if purposes is not None:
        wanted = wanted.where(FileRow.purpose.in_(purposes))
    if after is not None:
        last = find_file(connection, tenant, after, purposes)
        wanted = follow(wanted, FileRow, last.created_at, last.id)
    return [_file_of(row) for row in connection.execute(wanted.limit(limit))]


def _remove(writing: WriteTransaction, tenant: str, file_id: str) -> None:
    find_file(writing.connection, tenant, file_id)
    reads = or_(TrainingRow.train_file_id == file_id, TrainingRow.validation_file_id == file_id)
    active = select(TrainingRow.id).where(reads, TrainingRow.state.not_in(FINAL_STATES)).limit(1)
    user = writing.connection.execute(active).scalar_one_or_none()
    if user is not None:
        raise RegistryConflict(f"the file {file_id!r} is needed by the training {user!r}, which has not ended")
    batches = select(BatchRow.id).where(BatchRow.input_file_id == file_id, BatchRow.state.not_in(ENDED_BATCHES))
    batch = writing.connection.execute(batches.limit(1)).scalar_one_or_none()
    if batch is not None:
        raise RegistryConflict(f"the file {file_id!r} is needed by the batch {batch!r}, which has not ended")
    forget_file(writing.connection, file_id)
    writing.audit(tenant, "delete_file", file_id)


def _select(tenant: str) -> Select[*tuple[object, ...]]:
    columns = (getattr(FileRow, field.name) for field in fields(StoredFile))
    return select(*columns).where(FileRow.tenant == tenant)


def _file_of(row: Row[*tuple[object, ...]]) -> StoredFile:
    return StoredFile(**row._mapping)
