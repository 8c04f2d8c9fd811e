"""The keys by which a caller repeats a request whose answer it has not seen, and gets what the first one created."""

from datetime import timedelta

from sqlalchemy import Connection, delete, insert, select

from peltier_store.registry.errors import InvalidRecord
from peltier_store.registry.extensions.queue_records import IdempotencyKey, IdempotencyKeyRow
from peltier_store.registry.transactions import WriteTransaction

# Callers repeat a request within minutes.
_KEPT = timedelta(hours=24)


def find_repeated(connection: Connection, tenant: str, given: IdempotencyKey | None) -> str | None:
    """The id of what the tenant's first request with this key created; None without a key, or if it is new. Raises
    InvalidRecord if that request was another one."""
    if given is None:
        return None
    row = IdempotencyKeyRow
    first = select(row.digest, row.subject).where(row.tenant == tenant, row.key == given.key)
    found = connection.execute(first).one_or_none()
    if found is None:
        return None
    if found.digest != given.digest:
        raise InvalidRecord(
            f"the Idempotency-Key {given.key!r} was sent with another request; each request needs a key of its own"
        )
    return str(found.subject)


def keep(writing: WriteTransaction, tenant: str, given: IdempotencyKey | None, subject: str) -> None:
    """Records what the request with this key has created. The caller has made sure that the key is new."""
    if given is not None:
        row = {"tenant": tenant, "key": given.key, "digest": given.digest, "subject": subject, "created_at": writing.at}
        writing.connection.execute(insert(IdempotencyKeyRow).values(row))


def forget_keys(writing: WriteTransaction) -> None:
    """Removes the keys of requests that nobody repeats any more."""
    old = IdempotencyKeyRow.created_at <= writing.at - _KEPT
    writing.connection.execute(delete(IdempotencyKeyRow).where(old))
