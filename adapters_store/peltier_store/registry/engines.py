"""Runs synchronous work on connections to the registry's database, without blocking the event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.util import await_

from peltier_store.registry.database import create_postgresql_engine, create_sqlite_engine, describe, is_sqlite
from peltier_store.registry.database_file import DatabaseFile
from peltier_store.registry.errors import RegistryGone

T = TypeVar("T")

# One thread writes, and the others read. Fewer than the connections that an engine may open.
_NUM_THREADS = 8


class Access(Enum):
    """What a transaction may do. The commit of a relaxed write may be undone by a power loss."""

    READ = "read"
    WRITE = "write"
    RELAXED_WRITE = "relaxed write"


class Engines(Protocol):
    """The connections to one database."""

    async def run(self, access: Access, work: Callable[[Connection], T]) -> T:
        """Calls `work` in a transaction; an exception in it undoes its changes."""

    def wait(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the event loop while the work of a transaction waits for its result."""

    def pin(self, registry_id: str) -> None:
        """Declares that the database holds this registry; from then on no other one is used."""

    async def close(self) -> None:
        """Closes every connection."""


def create_engines(url: URL) -> Engines:
    """The engines for the database at `url`."""
    return SqliteEngines(url) if is_sqlite(url) else PostgresqlEngines(url)


class SqliteEngines:
    """A whole transaction runs in one thread. To hand every statement to a thread takes five times as long."""

    def __init__(self, url: URL) -> None:
        durable, relaxed = create_sqlite_engine(url), create_sqlite_engine(url, durable=False)
        self._name = describe(url)
        self._file = DatabaseFile(Path(url.database or ""))
        for engine in (durable, relaxed):
            self._file.follow(engine)
        self._engines: dict[Access, Engine] = {
            Access.READ: durable,
            Access.WRITE: durable.execution_options(begin="BEGIN IMMEDIATE"),
            Access.RELAXED_WRITE: relaxed.execution_options(begin="BEGIN IMMEDIATE"),
        }
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="registry")

    async def run(self, access: Access, work: Callable[[Connection], T]) -> T:
        """See `Engines`. Raises RegistryGone if the file was removed or replaced before the commit."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, access, work)

    def _run(self, access: Access, work: Callable[[Connection], T]) -> T:
        with self._engines[access].begin() as connection:
            result = work(connection)
            info = connection.info
        if access is not Access.READ and not self._file.is_open_in(info):
            raise RegistryGone(f"the registry {self._name} was removed or replaced during a write")
        return result

    def wait(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
        """See `Engines`."""
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    def pin(self, registry_id: str) -> None:
        """See `Engines`."""
        self._file.pin(registry_id)

    async def close(self) -> None:
        """See `Engines`."""
        for engine in self._engines.values():
            engine.dispose()
        self._threads.shutdown(wait=False)


class PostgresqlEngines:
    """The driver is asynchronous, so the work runs on the event loop, which does other things while it waits."""

    def __init__(self, url: URL) -> None:
        durable, relaxed = create_postgresql_engine(url), create_postgresql_engine(url, durable=False)
        self._engines = {
            # All statements of a reader must see the same state, as they always do on SQLite.
            Access.READ: durable.execution_options(isolation_level="REPEATABLE READ"),
            Access.WRITE: durable,
            Access.RELAXED_WRITE: relaxed,
        }

    async def run(self, access: Access, work: Callable[[Connection], T]) -> T:
        """See `Engines`."""
        async with self._engines[access].begin() as connection:
            return await connection.run_sync(work)

    def wait(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
        """See `Engines`."""
        return await_(work)

    def pin(self, registry_id: str) -> None:
        """See `Engines`. The identity that `Transactions` reads is enough."""

    async def close(self) -> None:
        """See `Engines`."""
        for engine in (self._engines[Access.WRITE], self._engines[Access.RELAXED_WRITE]):
            await engine.dispose()
