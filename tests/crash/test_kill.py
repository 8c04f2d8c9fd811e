"""Acknowledged changes survive `kill -9` at any moment."""

import asyncio
import os
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from peltier_store.blobs.blobs import Blobs
from peltier_store.location import StoreLocation
from peltier_store.registry.extensions.registry import Registry
from peltier_store.verification import VerificationReport, verify_store

from tests.crash.callers import Publisher, Tally
from tests.support.server_process import Server

# Each round is a start of the server, a burst of changes and a kill: CRASH_ROUNDS=100 takes some ten minutes.
_ROUNDS = int(os.environ.get("CRASH_ROUNDS", "3"))
_MAX_CHANGES = 24


@pytest.mark.parametrize("rounds", [1, pytest.param(_ROUNDS, marks=pytest.mark.slow)])
def test_a_killed_server_keeps_every_promise(start, publishers, tmp_path, rounds):
    """Acknowledged versions, deletions and aliases are there, bit by bit and answering; nothing half-written is."""
    draw = random.Random(7)
    for _ in range(rounds):
        server = start()
        for publisher in publishers:
            publisher.check(server.client)
        _burst(server, publishers, draw)
    server = start()
    tally = Tally()
    for publisher in publishers:
        publisher.check(server.client)
        tally.add(publisher.tally)
    server.end()
    verdict = asyncio.run(_verdict(tmp_path / "store"))
    print(f"{rounds} kills: {tally}; then {verdict.num_versions} versions and {len(verdict.orphans)} orphans")
    assert not verdict.problems


def _burst(server: Server, publishers: Sequence[Publisher], draw: random.Random) -> None:
    """All publishers at work until the server is killed, which is a moment after some number of changes; fails where
    one was refused anything by then."""
    last = _acknowledged(publishers) + draw.randint(1, _MAX_CHANGES)
    with ThreadPoolExecutor(len(publishers)) as pool:
        at_work = [pool.submit(publisher.work, server.client) for publisher in publishers]
        while _acknowledged(publishers) < last and not any(work.done() for work in at_work):
            time.sleep(0.001)
        time.sleep(draw.random() / 10)
        server.kill()
    for work in at_work:
        work.result()


def _acknowledged(publishers: Sequence[Publisher]) -> int:
    return sum(publisher.tally.acknowledged for publisher in publishers)


async def _verdict(store: Path) -> VerificationReport:
    """What `peltier store verify` finds, in deleted versions too."""
    location = StoreLocation.of(store)
    registry = await Registry.open(location.registry)
    try:
        return await verify_store(registry, Blobs.open(location.blobs))
    finally:
        await registry.close()
