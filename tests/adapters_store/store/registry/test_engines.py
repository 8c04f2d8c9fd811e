"""Transactions of SQLite run in threads, those of PostgreSQL on the event loop, and both may wait for it."""

import asyncio
import threading

import pytest
from peltier_store.registry.database import database_url
from peltier_store.registry.engines import Access, create_engines
from sqlalchemy import Connection, text


async def test_the_event_loop_runs_during_a_transaction(url: str) -> None:
    """A transaction waits for a task of the event loop, so a disk that hangs cannot stop the server."""
    engines, loop, answered = create_engines(database_url(url)), asyncio.get_running_loop(), asyncio.Event()

    async def answer() -> str:
        await answered.wait()
        return "answer"

    def work(connection: Connection) -> tuple[int, str]:
        loop.call_soon_threadsafe(answered.set)
        return connection.execute(text("SELECT 1")).scalar_one(), engines.wait(loop, answer())

    assert await engines.run(Access.READ, work) == (1, "answer")
    await engines.close()


async def test_a_transaction_of_sqlite_costs_one_change_of_thread(sqlite_url: str) -> None:
    """All statements run in one thread, because handing each to another thread takes longer than running it."""
    engines, threads = create_engines(database_url(sqlite_url)), set[int]()

    def work(connection: Connection) -> None:
        connection.connection.driver_connection.set_trace_callback(lambda _: threads.add(threading.get_ident()))
        for _ in range(3):
            connection.execute(text("SELECT 1"))
        threads.add(threading.get_ident())

    await engines.run(Access.READ, work)
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    await engines.close()


@pytest.mark.parametrize("access", Access)
async def test_an_error_of_the_work_undoes_it(url: str, access: Access) -> None:
    """The caller gets the same exception."""
    engines = create_engines(database_url(url))

    def fail(connection: Connection) -> None:
        if access is not Access.READ:
            connection.execute(text("UPDATE revision SET number = 77"))
        raise KeyError("of ours")

    with pytest.raises(KeyError):
        await engines.run(access, fail)
    found = await engines.run(Access.READ, lambda one: one.execute(text("SELECT number FROM revision")).scalar_one())
    assert found != 77
    await engines.close()
