"""What the server has acknowledged survives `kill -9` at any moment."""

import os
import random
import threading
import time
from collections.abc import Callable, Sequence

from tests.crash.publisher import Publisher, Tally
from tests.server_process import Server

# Each round is a start of the server, a burst of changes and a kill: CRASH_ROUNDS=100 takes some ten minutes.
_ROUNDS = int(os.environ.get("CRASH_ROUNDS", "3"))
_MAX_BURST_SECONDS = 3.0


def test_a_killed_server_keeps_every_promise(start: Callable[..., Server], publishers: list[Publisher]) -> None:
    """Acknowledged versions, deletions and aliases are there, bit by bit and answering; nothing half-written is."""
    moments = random.Random(7)
    for _ in range(_ROUNDS):
        server = start()
        for publisher in publishers:
            publisher.check(server.client)
        _burst(server, publishers, moments.uniform(0.05, _MAX_BURST_SECONDS))
    server = start()
    tally = Tally()
    for publisher in publishers:
        publisher.check(server.client)
        tally.add(publisher.tally)
    print(f"{_ROUNDS} kills: {tally}")
    assert tally.acknowledged > _ROUNDS


def _burst(server: Server, publishers: Sequence[Publisher], seconds: float) -> None:
    """All publishers at work until the server is killed."""
    threads = [threading.Thread(target=publisher.work, args=(server.client,)) for publisher in publishers]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    server.kill()
    for thread in threads:
        thread.join()
