"""The database and the bucket may go away under a running server and come back."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.crash.publisher import Publisher, Specimen, Tally
from tests.fault_proxy import FaultProxy, Mode
from tests.postgres_server import run_postgres
from tests.server_process import Server

_ROUNDS = int(os.environ.get("CRASH_ROUNDS", "1"))
_SECRET = 64 * "5"
_WORK_SECONDS = 1.0
_RECOVERY_SECONDS = 30
# A fifth of what a busy machine does while nothing is wrong.
_MIN_ACKNOWLEDGED_PER_SECOND = 4.0
# Within a second a server knows what the registry knows.
_FOLLOW_SECONDS = 1.0


@pytest.fixture
def faulty(s3_store: str) -> Iterator[tuple[FaultProxy, FaultProxy, Sequence[str]]]:
    """Proxies before a PostgreSQL and before a bucket, and the server's flags for both."""
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


@pytest.mark.parametrize("mode", ["cut", "silent"])
@pytest.mark.parametrize("which", ["database", "bucket"])
def test_what_goes_away_takes_nothing_with_it(
    start: Callable[..., Server],
    faulty: tuple[FaultProxy, FaultProxy, Sequence[str]],
    publishers: list[Publisher],
    specimens: list[Specimen],
    which: str,
    mode: Mode,
) -> None:
    """What is on the device answers meanwhile; afterwards everything acknowledged is there and changes work again."""
    database, bucket, flags = faulty
    proxy = database if which == "database" else bucket
    server = start(*flags, PELTIER_SECRET=_SECRET)
    for _ in range(_ROUNDS):
        _work(server, publishers, _WORK_SECONDS)
        # Reads every live version, so all are on the device.
        for publisher in publishers:
            publisher.check(server.client)
        proxy.set_mode(mode)
        for publisher in publishers:
            publisher.check_answers(server.client)
        _work(server, publishers, _WORK_SECONDS, heal=lambda: proxy.set_mode("open"))
        _recovered(server, specimens[0].data)
        for publisher in publishers:
            publisher.check(server.client)
    tally = Tally()
    for publisher in publishers:
        tally.add(publisher.tally)
    print(f"{which} {mode}, {_ROUNDS} times: {tally}")
    assert tally.acknowledged > _MIN_ACKNOWLEDGED_PER_SECOND * _WORK_SECONDS * _ROUNDS


def _work(
    server: Server, publishers: Sequence[Publisher], seconds: float, heal: Callable[[], None] | None = None
) -> None:
    """Changes for so long, or until one is not acknowledged; in an outage `heal` comes before waiting for what hangs.

    Fails where anything was refused for another reason.
    """
    until, outage = time.monotonic() + seconds, heal is not None
    with ThreadPoolExecutor(len(publishers)) as pool:
        at_work = [pool.submit(publisher.work, server.client, until, outage=outage) for publisher in publishers]
        time.sleep(seconds)
        if heal is not None:
            heal()
    for work in at_work:
        work.result()


def _recovered(server: Server, artifact: bytes) -> None:
    """Changes work again, and what others than this server have recorded is known to it."""
    deadline = time.monotonic() + _RECOVERY_SECONDS
    while not server.client.post("/v1/adapters", files={"file": artifact}, data={"name": "sentinel"}).is_success:
        assert time.monotonic() < deadline, server.log
        time.sleep(0.2)
    time.sleep(_FOLLOW_SECONDS)
