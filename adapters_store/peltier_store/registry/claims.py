"""Claims on blobs, so that garbage collection never deletes bytes that an upload is publishing.

A digest is in one of three states. Each change of state is one writing transaction, and these are serialised:

- *reserved*: rows in `reservations`, one per upload. `reserve` inserts one before the bytes are stored, and refuses
  while the digest is being collected. `publish` turns the reservation into a version, and refuses if it is gone; so do
  the operations that record a file, a checkpoint or a trained artifact.
- *recorded*: a row in `versions`, live or deleted, in `files`, in `trainings` or in `batch_parts`. Only `purge`
  removes a version, after the grace period; the owner deletes files and trainings, a newer checkpoint replaces the
  older one, and the files of a batch replace its parts.
- *being collected*: a row in `collections`. `begin_collection` inserts it only for a digest that is neither reserved
  nor recorded. The collector then deletes the bytes, and `end_collection` removes the row.

So from the return of `reserve` until the purge of the version, no collector may delete the bytes. An upload that has
lost its reservation must store the bytes again. Only the row decides this, not a clock: `begin_collection` removes
expired reservations, and only then are their bytes free.

A clock decides one thing: a collector that died leaves its rows, so others ignore them after an hour. A collector must
therefore delete everything within `MAX_COLLECTING` of `begin_collection`, by its own clock. The rest of the hour is a
margin for differing clocks and for a deletion that hangs.
"""

import secrets
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, SQLColumnExpression, Text, bindparam, delete, insert, select

from peltier_store.registry.errors import BlobBusy
from peltier_store.registry.lookup import marked_columns
from peltier_store.registry.records import Reservation
from peltier_store.registry.tables import IS_BLOB, CollectionRow, ReservationRow, UtcDateTime
from peltier_store.registry.transactions import WriteTransaction

MAX_COLLECTING = timedelta(minutes=10)
_RESERVED = timedelta(hours=1)
_COLLECTING = timedelta(hours=1)
# Well below the maximum number of parameters of a statement, on both databases.
_CHUNK = 500
_COLLECTED_NOW = select(CollectionRow.digest).where(
    CollectionRow.digest == bindparam("digest"), CollectionRow.expires_at > bindparam("at")
)
_RESERVE = (
    insert(ReservationRow)
    .inline()
    .from_select(
        ["token", "digest", "expires_at"],
        select(
            bindparam("token", type_=Text), bindparam("digest", type_=Text), bindparam("expires_at", type_=UtcDateTime)
        ).where(~_COLLECTED_NOW.exists()),
    )
)
_RELEASE = delete(ReservationRow).where(ReservationRow.token == bindparam("token"))


def reserve(writing: WriteTransaction, digest: str) -> Reservation:
    """Protects the bytes from collectors until they are published or released, for at most an hour. Call it before
    storing them. Raises BlobBusy while a collector is deleting them, which takes moments."""
    reservation = Reservation(secrets.token_hex(16), digest, writing.at + _RESERVED)
    if writing.connection.execute(_RESERVE, {**asdict(reservation), "at": writing.at}).rowcount != 1:
        raise BlobBusy(f"the blob {digest} is being deleted; it can be stored again in a moment")
    return reservation


def consume(connection: Connection, reservation: Reservation) -> None:
    """Ends the reservation, because its bytes are recorded now; raises BlobBusy if it was lost."""
    taken = connection.execute(_RELEASE, {"token": reservation.token})
    if taken.rowcount != 1:
        raise BlobBusy(f"the upload of {reservation.digest} took too long and its bytes may be gone; upload it again")


def release(writing: WriteTransaction, reservation: Reservation) -> None:
    """Ends the reservation, if it still exists."""
    writing.connection.execute(_RELEASE, {"token": reservation.token})


def begin_collection(writing: WriteTransaction, digests: Iterable[str]) -> set[str]:
    """Those of `digests` whose blobs the caller may delete within `MAX_COLLECTING`, by its own clock: nothing needs
    them, and nobody can reserve them until `end_collection`."""
    connection = writing.connection
    connection.execute(delete(ReservationRow).where(ReservationRow.expires_at <= writing.at))
    connection.execute(delete(CollectionRow).where(CollectionRow.expires_at <= writing.at))
    free = set(digests)
    for column in (*marked_columns(IS_BLOB), ReservationRow.digest, CollectionRow.digest):
        free -= _among(connection, column, free)
    expires_at = writing.at + _COLLECTING
    for chunk in _chunks(free):
        connection.execute(insert(CollectionRow), [{"digest": digest, "expires_at": expires_at} for digest in chunk])
    return free


def end_collection(writing: WriteTransaction, digests: Iterable[str]) -> None:
    """The bytes are deleted, or the collector gave up: they can be stored again."""
    for chunk in _chunks(digests):
        writing.connection.execute(delete(CollectionRow).where(CollectionRow.digest.in_(chunk)))


def _among(connection: Connection, column: SQLColumnExpression[Any], digests: Collection[str]) -> set[str]:
    found: set[str] = set()
    for chunk in _chunks(digests):
        found.update(connection.execute(select(column).where(column.in_(chunk))).scalars())
    return found


def _chunks(digests: Iterable[str]) -> Iterator[list[str]]:
    ordered = sorted(digests)
    for start in range(0, len(ordered), _CHUNK):
        yield ordered[start : start + _CHUNK]
