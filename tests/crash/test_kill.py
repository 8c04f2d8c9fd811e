"""What the server has acknowledged survives `kill -9` at any moment."""

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from peltier_adapters.registry import Registry
from peltier_adapters.store.blobs import Blobs
from peltier_adapters.store.location import StoreLocation
from peltier_adapters.store.verification import Verdict, verify_store

from tests.crash.publisher import Publisher, Tally
from tests.server_process import Server

# Each round is a start of the server, a burst of changes and a kill: CRASH_ROUNDS=100 takes some ten minutes.
_ROUNDS = int(os.environ.get("CRASH_ROUNDS", "3"))
_MAX_BURST_SECONDS = 3.0
# A third of what a busy machine does.
_MIN_ACKNOWLEDGED_PER_SECOND = 4.0


def test_a_killed_server_keeps_every_promise(
    start: Callable[..., Server], publishers: list[Publisher], tmp_path: Path
) -> None:
    """Acknowledged versions, deletions and aliases are there, bit by bit and answering; nothing half-written is."""
    random_moments = random.Random(7)
    moments = [random_moments.uniform(0.05, _MAX_BURST_SECONDS) for _ in range(_ROUNDS)]
    for moment in moments:
        server = start()
        for publisher in publishers:
            publisher.check(server.client)
        _burst(server, publishers, moment)
    server = start()
    tally = Tally()
    for publisher in publishers:
        publisher.check(server.client)
        tally.add(publisher.tally)
    server.end()
    verdict = asyncio.run(_verdict(tmp_path / "store"))
    print(f"{_ROUNDS} kills: {tally}; then {verdict.num_versions} versions and {len(verdict.orphans)} orphans")
    assert not verdict.problems
    assert tally.acknowledged > _MIN_ACKNOWLEDGED_PER_SECOND * sum(moments)


def _burst(server: Server, publishers: Sequence[Publisher], seconds: float) -> None:
    """All publishers at work until the server is killed; fails where one was refused anything by then."""
    with ThreadPoolExecutor(len(publishers)) as pool:
        at_work = [pool.submit(publisher.work, server.client) for publisher in publishers]
        time.sleep(seconds)
        server.kill()
    for work in at_work:
        work.result()


async def _verdict(store: Path) -> Verdict:
    """What `peltier store verify` finds, in deleted versions too."""
    location = StoreLocation.of(store)
    registry = await Registry.open(location.registry)
    try:
        return await verify_store(registry, Blobs.open(location.blobs))
    finally:
        await registry.close()
