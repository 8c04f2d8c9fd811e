"""Bounds of requests to other systems. For systems that cannot hang in a test, the timeouts that their clients get."""

import asyncio
import socket
import sqlite3
from datetime import timedelta
from unittest.mock import patch

from peltier_server.quotas import rates
from peltier_server.quotas.rates import Rate, Rates
from peltier_store.blobs import location as blob_location
from peltier_store.registry import database, transactions
from sqlalchemy import make_url

from tests.server.limits.probe import Met, probe
from tests.server.limits.servers import Servers, Small

_DOWN = "the request fails as one to a store that is down"
_OWN = "nothing: this replica counts for itself"


@probe(
    "time of a request to a bucket; three times that with repetitions",
    "peltier_store.blobs.location._DEFAULT_TIMEOUT_SECONDS",
)
def _(_: Servers) -> Met:
    given = blob_location._timeouts({"timeout": "7"})
    assert given["client_options"]["timeout"] == timedelta(seconds=7)
    # The last attempt begins before that.
    assert given["retry_config"]["retry_timeout"] == timedelta(seconds=14)
    return _DOWN


@probe("time to connect to a bucket", "peltier_store.blobs.location._MAX_CONNECT_SECONDS")
def _(_: Servers) -> Met:
    assert blob_location._timeouts({})["client_options"]["connect_timeout"] == timedelta(seconds=5)
    return _DOWN


@probe("time to wait for the registry's write lock", "peltier_store.registry.transactions._TURN_SECONDS")
def _(servers: Servers) -> Met:
    turn = servers.bert.service.store.registry._transactions._turn
    with patch.object(transactions, "_TURN_SECONDS", 0.1):
        servers.bert.run(turn.acquire())
        try:
            return _change(servers.bert)
        finally:
            servers.bert.run(_release(turn))


@probe("time for a lock of SQLite that another process holds", "peltier_store.registry.database.BUSY_SECONDS")
def _(servers: Servers) -> Met:
    with patch.object(database, "BUSY_SECONDS", 0.1), servers.start("bert") as other:
        path = make_url(other.service.settings.store.registry).database
        assert path is not None
        with sqlite3.connect(path, isolation_level=None) as holder:
            holder.execute("BEGIN IMMEDIATE")
            answer = _change(other)
            holder.execute("ROLLBACK")
        holder.close()
        return answer


@probe("time of a statement in PostgreSQL", "peltier_store.registry.database._STATEMENT_SECONDS")
def _(_: Servers) -> Met:
    assert database._postgresql_arguments()["command_timeout"] == 30
    return _DOWN


@probe("time to connect to PostgreSQL", "peltier_store.registry.database._CONNECT_SECONDS")
def _(_: Servers) -> Met:
    assert database._postgresql_arguments()["timeout"] == 10
    return _DOWN


@probe("time for the rate store to answer", "peltier_server.quotas.rates._TIMEOUT_SECONDS")
def _(_: Servers) -> Met:
    assert asyncio.run(_taken_from_one_that_hangs(1)) == [True]
    return _OWN


@probe("pause after the rate store did not answer", "peltier_server.quotas.rates._PAUSE_SECONDS")
def _(_: Servers) -> Met:
    with patch.object(rates, "_PAUSE_SECONDS", 3600):
        assert asyncio.run(_taken_from_one_that_hangs(3)) == [True, True, False]
    return _OWN


async def _taken_from_one_that_hangs(count: int) -> list[bool]:
    """Whether each of so many units was there, of two in a day."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        asked = Rates(f"redis://127.0.0.1:{silent.getsockname()[1]}")
        try:
            return [await asked.take(Rate("requests", 2, 100_000), "a") is not None for _ in range(count)]
        finally:
            await asked.close()


async def _release(turn: asyncio.Lock) -> None:
    turn.release()


def _change(server: Small) -> Met:
    return server.client.patch("/v1/adapters/demo", json={"public": True})
