"""Files of examples, and of requests and results of batches. The bytes are a blob, and are kept as long as the file
has a row."""

import secrets
from collections.abc import Collection
from dataclasses import asdict
from datetime import timedelta

from sqlalchemy import Connection, delete, insert, or_, select, update

from peltier_store.registry.claims import consume
from peltier_store.registry.errors import FileUnknown, RegistryConflict
from peltier_store.registry.extensions.queue import follow
from peltier_store.registry.extensions.queue_records import (
    ENDED_BATCHES,
    FINAL_STATES,
    NewFile,
    StoredBatch,
    StoredFile,
    StoredTraining,
)
from peltier_store.registry.operations import Operations, reads
from peltier_store.registry.records import Reservation, check_text
from peltier_store.registry.tenants import require_quotas, require_room_for_bytes
from peltier_store.registry.transactions import WriteTransaction

# How long a server may take from storing the examples of a training to creating it.
_MAX_CREATING = timedelta(hours=1)
_FILES = select(StoredFile.__table__)


def find_file(connection: Connection, tenant: str, file_id: str, purposes: Collection[str] | None = None) -> StoredFile:
    """A file of one of these purposes, by default of any. Raises FileUnknown."""
    row = connection.execute(_FILES.where(StoredFile.tenant == tenant, StoredFile.id == file_id)).one_or_none()
    if row is None or (purposes is not None and row.purpose not in purposes):
        raise FileUnknown(f"tenant {tenant!r} has no file {file_id!r}")
    return StoredFile(**row._mapping)


def forget_file(connection: Connection, file_id: str) -> None:
    """Deletes the row of a file, and the references of trainings to it."""
    for column in (StoredTraining.train_file_id, StoredTraining.validation_file_id):
        connection.execute(update(StoredTraining).where(column == file_id).values({column.key: None}))
    connection.execute(delete(StoredFile).where(StoredFile.id == file_id))


def forget_abandoned(writing: WriteTransaction) -> None:
    """Deletes examples that were sent with a training which was never created, because the server died before."""
    used = select(StoredTraining.id).where(
        or_(StoredTraining.train_file_id == StoredFile.id, StoredTraining.validation_file_id == StoredFile.id)
    )
    old = StoredFile.created_at < writing.at - _MAX_CREATING
    writing.connection.execute(delete(StoredFile).where(StoredFile.is_inline, old, ~used.exists()))


def add_result(writing: WriteTransaction, tenant: str, purpose: str, new: NewFile, *, created_by: str) -> str:
    """Records a file that the server has made, whatever the tenant has stored; returns its id."""
    return _insert(writing, tenant, new, purpose=purpose, created_by=created_by).id


def _insert(  # noqa: PLR0913 - what a file is
    writing: WriteTransaction, tenant: str, new: NewFile, *, purpose: str, created_by: str, is_inline: bool = False
) -> StoredFile:
    file = StoredFile(
        id=f"file-{secrets.token_hex(12)}",
        tenant=tenant,
        name=new.name,
        purpose=purpose,
        digest=new.reservation.digest,
        size_bytes=new.size_bytes,
        num_rows=new.num_rows,
        is_inline=is_inline,
        created_at=writing.at,
        created_by=created_by,
    )
    consume(writing.connection, new.reservation)
    writing.connection.execute(insert(StoredFile).values(asdict(file)))
    writing.audit(tenant, "create_file", file.id, name=file.name, size_bytes=file.size_bytes)
    return file


def _require_room(connection: Connection, tenant: str, size_bytes: int) -> None:
    """Raises TenantUnknown, or QuotaReached if `add` would refuse so many bytes now."""
    require_room_for_bytes(connection, require_quotas(connection, tenant), tenant, size_bytes)


def _list(
    connection: Connection,
    tenant: str,
    *,
    purposes: Collection[str] | None = None,
    limit: int = 100,
    after: str | None = None,
) -> list[StoredFile]:
    """At most `limit` files of these purposes, newest first, that follow the file `after`, which is one of them.
    Raises FileUnknown for that one."""
    own = _FILES.where(StoredFile.tenant == tenant, ~StoredFile.is_inline)
    wanted = own.order_by(StoredFile.created_at.desc(), StoredFile.id.desc())
    if purposes is not None:
        wanted = wanted.where(StoredFile.purpose.in_(purposes))
    if after is not None:
        last = find_file(connection, tenant, after, purposes)
        wanted = follow(wanted, StoredFile, last.created_at, last.id)
    return [StoredFile(**row._mapping) for row in connection.execute(wanted.limit(limit))]


def _remove(writing: WriteTransaction, tenant: str, file_id: str) -> None:
    find_file(writing.connection, tenant, file_id)
    reads = or_(StoredTraining.train_file_id == file_id, StoredTraining.validation_file_id == file_id)
    active = select(StoredTraining.id).where(reads, StoredTraining.state.not_in(FINAL_STATES)).limit(1)
    user = writing.connection.execute(active).scalar_one_or_none()
    if user is not None:
        raise RegistryConflict(f"the file {file_id!r} is needed by the training {user!r}, which has not ended")
    batches = select(StoredBatch.id).where(
        StoredBatch.input_file_id == file_id, StoredBatch.state.not_in(ENDED_BATCHES)
    )
    batch = writing.connection.execute(batches.limit(1)).scalar_one_or_none()
    if batch is not None:
        raise RegistryConflict(f"the file {file_id!r} is needed by the batch {batch!r}, which has not ended")
    forget_file(writing.connection, file_id)
    writing.audit(tenant, "delete_file", file_id)


class FileRegistry(Operations):
    """Files of a registry's tenants."""

    find = reads(find_file)
    list = reads(_list)
    require_room = reads(_require_room)

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
            check_text("file name", name)
            check_text("purpose", purpose)
            _require_room(writing.connection, tenant, size_bytes)
            new = NewFile(reservation, name, size_bytes, num_rows)
            return _insert(writing, tenant, new, purpose=purpose, created_by=actor, is_inline=is_inline)

        return await self._transactions.write(actor, work)

    async def remove(self, tenant: str, file_id: str, *, actor: str) -> None:
        """Deletes a file. Raises FileUnknown, or RegistryConflict if a training or a batch that has not ended needs
        it."""
        await self._write(actor, _remove, tenant, file_id)
