"""A server survives outages of its database and its bucket."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from itertools import product
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import httpx2
import pytest
from peltier_store.registry.database import database_url
from peltier_store.registry.extensions.registry import Registry

from tests.crash.callers import Publisher, Tally
from tests.support.fault_proxy import FaultProxy, Mode
from tests.support.postgres_server import run_postgres
from tests.support.server_process import Server

_ROUNDS = int(os.environ.get("CRASH_ROUNDS", "3"))
_SECRET = 64 * "5"
_NUM_CHANGES = 3
# Of each publisher, if nothing that it changes needs what is away.
_MAX_CHANGES_IN_AN_OUTAGE = 20
_MAX_OUTAGE_SECONDS = 1.0
_RECOVERY_SECONDS = 120


@pytest.fixture
def faulty(s3_store: str) -> Iterator[tuple[FaultProxy, FaultProxy, Sequence[str]]]:
    """Proxies in front of PostgreSQL and of a bucket, and the server's flags for both."""
    endpoint = parse_qs(urlsplit(s3_store).query)["endpoint"][0]
    host, port = urlsplit(endpoint).hostname, urlsplit(endpoint).port
    assert host is not None
    assert port is not None
    with ExitStack() as stack:
        postgres = stack.enter_context(run_postgres())
        database = stack.enter_context(FaultProxy("127.0.0.1", postgres.port).running())
        bucket = stack.enter_context(FaultProxy(host, port).running())
        registry = postgres.url(postgres.create_database()).replace(f":{postgres.port}/", f":{database.port}/")
        store = s3_store.replace(endpoint, f"http://127.0.0.1:{bucket.port}")
        yield database, bucket, ("--registry", registry, "--store", store)


@pytest.mark.postgres
@pytest.mark.slow  # test_kill.py stays, and the tests of the registry and the blobs through the same proxy
@pytest.mark.parametrize("rounds", [_ROUNDS])
def test_what_goes_away_takes_nothing_with_it(start, faulty, publishers, specimens, rounds):
    """Database and bucket in turn, cut off and silent: what is on the device answers meanwhile; afterwards everything
    acknowledged is there and changes work again."""
    *proxies, flags = faulty
    server = start(*flags, PELTIER_SECRET=_SECRET)
    modes: list[Mode] = ["cut", "silent"]
    outages = list(product(range(rounds), proxies, modes))
    for _, proxy, mode in outages:
        _work(server, publishers)
        # Reads every live version, so all are on the device.
        for publisher in publishers:
            publisher.check(server.client)
        proxy.set_mode(mode)
        for publisher in publishers:
            publisher.check_answers(server.client)
        _work(server, publishers, heal=partial(proxy.set_mode, "open"))
        _recovered(server, specimens[0].data, flags[1])
        for publisher in publishers:
            publisher.check(server.client)
    tally = Tally()
    for publisher in publishers:
        tally.add(publisher.tally)
    print(f"{len(outages)} outages: {tally}")
    assert tally.acknowledged >= _NUM_CHANGES * len(publishers) * len(outages)


def _work(server: Server, publishers: Sequence[Publisher], heal: Callable[[], None] | None = None) -> None:
    """Some changes of each, in an outage until one is not acknowledged or hangs, for which `heal` comes then.

    Fails where anything was refused for another reason.
    """
    outage = heal is not None
    num_changes = _MAX_CHANGES_IN_AN_OUTAGE if outage else _NUM_CHANGES
    with ThreadPoolExecutor(len(publishers)) as pool:
        at_work = [pool.submit(publisher.work, server.client, num_changes, outage=outage) for publisher in publishers]
        wait(at_work, timeout=_MAX_OUTAGE_SECONDS if outage else None)
        if heal is not None:
            heal()
    for work in at_work:
        work.result()


def _recovered(server: Server, artifact: bytes, registry: str) -> None:
    """Changes work again, and what others than this server have recorded is known to it."""
    _wait_for(
        lambda: server.client.post("/v1/adapters", files={"file": artifact}, data={"name": "sentinel"}).is_success,
        server,
    )
    # A server learns of changes in their order: with this one it knows all that the registry had before.
    alias = f"seen-{uuid4().hex}"
    asyncio.run(_point(registry, alias))
    _wait_for(lambda: alias in server.client.get("/v1/adapters/sentinel/aliases").text, server)


async def _point(registry: str, alias: str) -> None:
    """Points an alias to the sentinel, as another server does."""
    opened = Registry(database_url(registry))
    await opened.set_alias("default", "sentinel", alias, {1: 1.0}, actor="test")
    await opened.close()


def _wait_for(condition: Callable[[], bool], server: Server) -> None:
    deadline = time.monotonic() + _RECOVERY_SECONDS
    while not _holds(condition):
        assert time.monotonic() < deadline, server.log
        time.sleep(0.2)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except httpx2.TransportError:
        return False
