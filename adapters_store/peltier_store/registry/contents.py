"""All that a registry holds, as rows for backups."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from sqlalchemy import Connection

from peltier_store.registry.dump import Line, read_lines, require_empty, require_no_collectors, write_lines
from peltier_store.registry.transactions import NO_ACTOR, Transactions, WriteTransaction


class Contents:
    """The rows of a registry: tenants, keys, adapters, versions, aliases and the audit log."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def dump(self, take: Callable[[Line], object]) -> None:
        """Calls `take` with every row of one state. On SQLite another thread calls it."""

        def work(connection: Connection) -> None:
            for line in read_lines(connection):
                take(line)

        await self._transactions.read(work)

    async def require_empty(self) -> None:
        """Raises RegistryConflict if the registry holds more than the tenant that every registry begins with."""
        await self._transactions.read(require_empty)

    async def restore(self, lines: Iterable[Line], ready: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Inserts the rows of a dump in one transaction. `ready` runs in it, when no blob can be deleted any more.

        Raises RegistryConflict unless the registry is empty, BlobBusy while its blobs are being deleted, InvalidRecord
        for an invalid row, or what `ready` raises.
        """
        wait = self._transactions.waiting(ready)

        def work(writing: WriteTransaction) -> None:
            require_empty(writing.connection)
            require_no_collectors(writing)
            # `ready` may list a large bucket.
            writing.allow_idling()
            wait()
            write_lines(writing, lines)

        await self._transactions.write(NO_ACTOR, work)
