"""Batches of requests in files, and the queue from which servers take them.

A server holds a batch for one turn, in which it stores the results of some lines. Results are recorded in the
transaction that ends the turn, so each line has one result, also if a server was too slow and has lost its batch.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select

from peltier_store.registry.claims import consume
from peltier_store.registry.errors import BatchUnknown, LeaseLost, QuotaReached, RegistryConflict
from peltier_store.registry.extensions.files import add_result, find_file
from peltier_store.registry.extensions.idempotency import find_repeated, keep
from peltier_store.registry.extensions.queue import NO_HOLDER, Queue, claimed, follow, is_over, leased, unattempted
from peltier_store.registry.extensions.queue_records import (
    ENDED_BATCHES,
    BatchDraft,
    BatchPart,
    BatchPartRow,
    IdempotencyKey,
    NewFile,
    StoredBatch,
)
from peltier_store.registry.operations import Operations, reads, writes
from peltier_store.registry.records import Reservation, check_text
from peltier_store.registry.tenants import require_quotas, require_room_for_bytes
from peltier_store.registry.transactions import QueueTransaction, WriteTransaction, read_clock

WINDOW = timedelta(hours=24)
# Of a tenant, among those that have not ended.
MAX_BATCHES = 100
RESULTS = "batch_output"
_BATCHES = Queue(StoredBatch, "batch")


def _create_once(writing: WriteTransaction, tenant: str, draft: BatchDraft, key: IdempotencyKey | None) -> StoredBatch:
    if (repeated := find_repeated(writing.connection, tenant, key)) is not None:
        return _find_own(writing.connection, tenant, repeated)
    batch = _create(writing, tenant, draft)
    keep(writing, tenant, key, batch.id)
    return batch


def _create(writing: WriteTransaction, tenant: str, draft: BatchDraft) -> StoredBatch:
    connection = writing.connection
    require_quotas(connection, tenant)
    find_file(connection, tenant, draft.input_file_id)
    counted = select(func.count()).where(StoredBatch.tenant == tenant, StoredBatch.state.not_in(ENDED_BATCHES))
    if (count := connection.execute(counted).scalar_one()) >= MAX_BATCHES:
        raise QuotaReached(
            f"tenant {tenant!r} has {count} batches that have not ended and may have {MAX_BATCHES}; wait for one or "
            "cancel it"
        )
    for word in (draft.request_metadata or {}).items():
        check_text("metadata", "".join(word))
    batch = StoredBatch(
        id=f"batch_{secrets.token_hex(12)}",
        tenant=tenant,
        state="validating",
        created_at=writing.at,
        created_by=writing.actor,
        expires_at=writing.at + WINDOW,
        **vars(draft),
    )
    connection.execute(insert(StoredBatch).values(asdict(batch)))
    writing.audit(tenant, "create_batch", batch.id, endpoint=batch.endpoint)
    return batch


def _cancel(writing: WriteTransaction, tenant: str, batch_id: str) -> StoredBatch:
    batch = _find_own(writing.connection, tenant, batch_id, lock=True)
    if batch.state in ("cancelling", "cancelled"):
        return batch
    if batch.state in ENDED_BATCHES or batch.state == "finalizing":
        raise RegistryConflict(f"the batch {batch_id!r} is {batch.state}, so it cannot be cancelled")
    writing.audit(tenant, "cancel_batch", batch_id)
    return _BATCHES.change(writing, batch, state="cancelling", cancelling_at=writing.at)


def _find_own(connection: Connection, tenant: str, batch_id: str, *, lock: bool = False) -> StoredBatch:
    """Raises BatchUnknown."""
    batch = _BATCHES.find(connection, batch_id, lock=lock)
    if batch is None or batch.tenant != tenant:
        raise BatchUnknown(f"tenant {tenant!r} has no batch {batch_id!r}")
    return batch


def _list(connection: Connection, tenant: str, *, limit: int = 100, after: str | None = None) -> list[StoredBatch]:
    """At most `limit` batches, newest first, that follow the batch `after`. Raises BatchUnknown for that one."""
    wanted = (
        _BATCHES.select()
        .where(StoredBatch.tenant == tenant)
        .order_by(StoredBatch.created_at.desc(), StoredBatch.id.desc())
    )
    if after is not None:
        last = _find_own(connection, tenant, after)
        wanted = follow(wanted, StoredBatch, last.created_at, last.id)
    return _BATCHES.read(connection, wanted.limit(limit))


def _parts(connection: Connection, batch_id: str) -> list[BatchPart]:
    """The results that are not in files yet, in the order of the lines."""
    columns = (getattr(BatchPartRow, field.name) for field in fields(BatchPart))
    wanted = select(*columns).where(BatchPartRow.batch_id == batch_id).order_by(BatchPartRow.first_line)
    return [BatchPart(**row._mapping) for row in connection.execute(wanted)]


def _count(connection: Connection) -> dict[str, int]:
    """How many batches there are in each state that is not final."""
    return _BATCHES.count(connection, ENDED_BATCHES)


def _has_work(connection: Connection) -> bool:
    """A server that waits asks this again and again, without writing."""
    return (
        connection.execute(select(StoredBatch.id).where(_is_free(read_clock(connection))).limit(1)).first() is not None
    )


def _is_free(now: datetime) -> ColumnElement[bool]:
    return StoredBatch.state.not_in(ENDED_BATCHES) & is_over(StoredBatch, now)


def _claim(claiming: QueueTransaction, replica: str) -> StoredBatch | None:
    free = _is_free(claiming.at)
    waiting = select(StoredBatch.tenant).where(free).distinct()
    served = select(StoredBatch.tenant, func.max(StoredBatch.served_at)).where(StoredBatch.tenant.in_(waiting))
    rows = claiming.connection.execute(served.group_by(StoredBatch.tenant))
    last = {row[0]: row[1] for row in rows}
    for tenant in sorted(last, key=lambda tenant: (last[tenant] is not None, last[tenant], tenant)):
        oldest = (
            _BATCHES.select().where(free, StoredBatch.tenant == tenant).order_by(StoredBatch.created_at, StoredBatch.id)
        )
        if (batch := _BATCHES.lock_first(claiming, oldest)) is not None:
            return _BATCHES.change(claiming, batch, served_at=claiming.at, **claimed(claiming, batch, replica))
    return None


def _renew(writing: WriteTransaction, batch_id: str, replica: str) -> None:
    """Extends the lease. Raises LeaseLost."""
    _BATCHES.change(writing, _BATCHES.held(writing, batch_id, replica), **leased(writing))


def _release(writing: WriteTransaction, batch_id: str, replica: str, *, pause: timedelta = timedelta(0)) -> None:
    """Ends a turn without results, because the server stops or something is temporarily wrong. Nobody claims the batch
    before `pause` has passed. Raises LeaseLost."""
    batch = _BATCHES.held(writing, batch_id, replica)
    _BATCHES.change(writing, batch, attempts=unattempted(batch), holder=None, lease_expires_at=writing.at + pause)


def _begin(writing: WriteTransaction, batch_id: str, replica: str, *, num_lines: int) -> None:
    """Ends the turn in which the file was found to be valid. Raises LeaseLost."""
    batch = _BATCHES.held(writing, batch_id, replica)
    values: dict[str, Any] = {"num_lines": num_lines, "attempts": 0, **NO_HOLDER}
    if batch.state == "validating":
        values |= {"state": "in_progress", "started_at": writing.at}
    _BATCHES.change(writing, batch, **values)


def _add_part(
    writing: WriteTransaction, batch_id: str, replica: str, reservation: Reservation, part: BatchPart
) -> None:
    """Ends a turn with results.

    Raises LeaseLost, QuotaReached if the tenant may store no more, or BlobBusy if the reservation is gone.
    """
    batch = _BATCHES.held(writing, batch_id, replica)
    if part.first_line != batch.num_done:
        raise LeaseLost(f"the batch {batch_id!r} has {batch.num_done} results, and the part begins at another line")
    quotas = require_quotas(writing.connection, batch.tenant)
    require_room_for_bytes(writing.connection, quotas, batch.tenant, part.size_bytes)
    consume(writing.connection, reservation)
    writing.connection.execute(insert(BatchPartRow).values(batch_id=batch_id, **vars(part)))
    completed, failed = batch.num_completed + part.num_completed, batch.num_failed + part.num_failed
    values: dict[str, Any] = {"num_completed": completed, "num_failed": failed, "attempts": 0, **NO_HOLDER}
    if batch.state == "in_progress" and completed + failed == batch.num_lines:
        values |= {"state": "finalizing", "finalizing_at": writing.at}
    _BATCHES.change(writing, batch, **values)


def _finish(  # noqa: PLR0913 - what a batch ends with
    writing: WriteTransaction,
    batch_id: str,
    replica: str,
    state: str,
    *,
    output: NewFile | None = None,
    error: NewFile | None = None,
    errors: Sequence[Mapping[str, Any]] | None = None,
) -> None:
    """Ends a batch in one of `ENDED_BATCHES`, with its results in files. Raises LeaseLost, or BlobBusy if a reservation
    is gone."""
    batch = _BATCHES.held(writing, batch_id, replica)
    output_id, error_id = (
        None if file is None else add_result(writing, batch.tenant, RESULTS, file, created_by=batch.created_by)
        for file in (output, error)
    )
    writing.connection.execute(delete(BatchPartRow).where(BatchPartRow.batch_id == batch_id))
    num_failed = batch.num_failed if error is None else error.num_rows
    listed = None if errors is None else [dict(one) for one in errors]
    written = {"output_file_id": output_id, "error_file_id": error_id, "num_failed": num_failed, "errors": listed}
    _BATCHES.change(writing, batch, state=state, finished_at=writing.at, **written, **NO_HOLDER)


class BatchRegistry(Operations):
    """Batches of a registry's tenants, for their owners and for the servers that hold them."""

    find = reads(_find_own)
    list = reads(_list)
    parts = reads(_parts)
    count = reads(_count)
    renew = writes(_renew)
    release = writes(_release)
    begin = writes(_begin)
    add_part = writes(_add_part)
    finish = writes(_finish)

    async def create(
        self, tenant: str, draft: BatchDraft, *, actor: str, key: IdempotencyKey | None = None
    ) -> StoredBatch:
        """Puts a batch into the queue, or finds the one that the request with this key has created. Raises
        TenantUnknown, FileUnknown, QuotaReached, or InvalidRecord for text that cannot be stored or the key of another
        request."""
        return await self._write(actor, _create_once, tenant, draft, key)

    async def cancel(self, tenant: str, batch_id: str, *, actor: str) -> StoredBatch:
        """Cancels a batch; a server then puts the results that there are into files. Raises BatchUnknown, or
        RegistryConflict for a batch that has ended."""
        return await self._write(actor, _cancel, tenant, batch_id)

    async def claim(self, replica: str) -> StoredBatch | None:
        """The next batch for a server, which has it for `queue.LEASE`; None if nothing waits. First is the tenant that
        was served the longest time ago, of that tenant the oldest batch."""
        if not await self._transactions.read(_has_work):
            return None
        return await self._transactions.claim(lambda claiming: _claim(claiming, replica))
