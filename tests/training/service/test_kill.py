"""Workers that are killed lose nothing, and finish nothing twice."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from peltier_store.blobs.blobs import Blobs
from peltier_store.location import StoreLocation, require_own
from peltier_store.registry.extensions.registry import Registry
from peltier_training.service.child import ARCHIVE, Completed
from peltier_training.service.request import Machine

from tests.support.postgres_server import PostgresServer
from tests.training.service.conftest import Desk, Queue
from tests.training.service.killed_workers import ASKED, DATA, kill_workers

NUM_KILLS = int(os.environ.get("PELTIER_TEST_KILLS", "4"))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def queue(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Queue]:
    """One on each database."""
    url = ""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.url(server.create_database())
    location = StoreLocation.of(tmp_path / "store", url)
    blobs = await asyncio.to_thread(Blobs.open, location.blobs)
    registry = await Registry.open(location.registry)
    await require_own(registry, blobs)
    yield Queue(location, registry, blobs)
    await registry.close()


# A worker that is stopped, and one that loses its lease, are in `test_worker.py`; a process that is cut off is in
# `test_job.py`. Beside other tests the workers would be killed before they have begun.
@pytest.mark.alone
async def test_killed_workers_lose_nothing(queue: Queue, machine: Machine, desk: Desk):
    """Every training ends once, with the weights of a run that nobody kills."""
    expected, start = {}, time.monotonic()
    for asked in ASKED:
        found = desk.do(desk.job(DATA, asked))
        assert isinstance(found, Completed)
        (desk.folder / ARCHIVE).unlink()
        expected[asked.get("seed", 0)] = (desk.folder / found.artifact).read_bytes()
    seconds = (time.monotonic() - start) / len(ASKED)
    killed = await kill_workers(queue, machine.backbone, NUM_KILLS, seed=0, seconds=2 * seconds)
    assert killed.num_kills == NUM_KILLS
    assert killed.num_busy > 0
    assert [training.reason for training in killed.trainings if training.state != "publishing"] == []
    assert set(killed.completions.values()) == {1}
    for training in killed.trainings:
        assert await queue.blobs.get(training.artifact_digest) == expected[training.request.get("seed", 0)]
