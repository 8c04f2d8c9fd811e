"""The clients' files and trainings against a server over a socket. The worker is played."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from peltier_client import (
    AsyncClient,
    Client,
    Conflict,
    FileNotFound,
    InvalidInput,
    TrainingFailed,
    TrainingNotFound,
)
from peltier_store.registry.extensions.queue_records import StoredTraining

from tests.server.conftest import Listening
from tests.support.played_worker import NAME, PlayedWorker

ROWS = [{"text": "a gem", "label": "good"}, {"text": "a bore", "label": "bad"}]


@pytest.fixture
async def client(world: Listening, key: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(world.url, key) as opened:
        yield opened
        async for training in opened.trainings.list():
            if not training.has_ended:
                await opened.trainings.cancel(training.id)


async def test_examples_become_an_adapter_that_answers(world, key, client, worker, artifact):
    """`client.train` waits, in ordinary code, for the version that then answers by its alias."""

    def train() -> tuple[str | None, str | None]:
        with Client(world.url, key) as ordinary:
            done = ordinary.train("film", ROWS, validation=0.5, preset="bitfit", seed=1, alias="live")
            return done.adapter, ordinary.predict("film@live", "a gem")[0].label

    waiting = asyncio.create_task(asyncio.to_thread(train))
    training = await _begun(worker, client)
    assert training.request["validation_share"] == 0.5
    await worker.leave(training, artifact)
    adapter, label = await waiting
    assert adapter == "film@1"
    assert label is not None


async def test_events_are_heard_as_they_happen(client: AsyncClient, worker: PlayedWorker, artifact: bytes) -> None:
    """From the first to the state that ends the training; a caller that comes later hears the same."""
    queued = await client.train("film", ROWS, wait=False)
    events = client.trainings.events(queued.id)
    assert (await anext(events)).data == {"state": "queued"}
    training = await worker.begin()
    assert (await anext(events)).data == {"state": "running"}
    await worker.report(training, "Step 1 of 4.")
    heard = await anext(events)
    assert (heard.kind, heard.message, heard.data["loss"]) == ("progress", "Step 1 of 4.", 0.5)
    shown = await client.trainings.get(queued.id)
    assert shown.progress is not None
    assert (shown.status, shown.progress.step, shown.seconds_left) == ("running", 1, 3.0)
    await worker.leave(training, artifact)
    rest = [event async for event in events]
    assert rest[-1].data["state"] == "succeeded"
    again = [event async for event in client.trainings.events(queued.id, after=heard.id)]
    assert again == rest
    assert [event async for event in client.trainings.events(queued.id, after=rest[-1].id)] == []


async def test_a_failed_training_raises_its_reason(client: AsyncClient, worker: PlayedWorker) -> None:
    waiting = asyncio.create_task(client.train("film", ROWS))
    training = await _begun(worker, client)
    await worker.registry.trainings.settle(training.id, NAME, state="failed", reason="row 1 has no label")
    with pytest.raises(TrainingFailed, match=f"^training {training.id} of film failed: row 1 has no label$"):
        await waiting


async def test_pause_resume_cancel_and_delete(client: AsyncClient) -> None:
    """The states in turn; what makes no sense is refused."""
    training = await client.trainings.create("film", examples=ROWS, keep_examples=True)
    assert (await client.trainings.pause(training.id)).status == "paused"
    assert [one.id async for one in client.trainings.list("paused")] == [training.id]
    assert (await client.trainings.resume(training.id)).status == "queued"
    with pytest.raises(Conflict):
        await client.trainings.delete(training.id)
    assert (await client.trainings.cancel(training.id)).status == "cancelled"
    assert (await client.trainings.wait(training.id)).has_ended
    assert (await client.files.get(training.file_id)).rows == 2
    await client.trainings.delete(training.id)
    for missing in (client.trainings.get(training.id), client.files.get(training.file_id)):
        with pytest.raises((TrainingNotFound, FileNotFound)):
            await missing


async def test_a_file_for_trainings(client: AsyncClient, tmp_path: Path) -> None:
    """Uploaded, read back, used, and kept until no training needs it."""
    path = tmp_path / "film.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    file = await client.files.create(path)
    assert (file.filename, file.rows) == ("film.jsonl", 2)
    assert await client.files.content(file.id) == path.read_bytes()
    assert file.id in [one.id async for one in client.files.list()]
    training = await client.trainings.create("film", file_id=file.id)
    with pytest.raises(Conflict):
        await client.files.delete(file.id)
    await client.trainings.cancel(training.id)
    await client.files.delete(file.id)
    with pytest.raises(FileNotFound):
        await client.files.get(file.id)
    with pytest.raises(InvalidInput, match="line 1 is not JSON"):
        await client.files.create(b"nonsense", "film.jsonl")


async def _begun(worker: PlayedWorker, client: AsyncClient) -> StoredTraining:
    """The next training, once it waits."""
    async with asyncio.timeout(60):
        while not [one async for one in client.trainings.list("queued")]:  # noqa: ASYNC110 - as callers do
            await asyncio.sleep(0.01)
    return await worker.begin()
