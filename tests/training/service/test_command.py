"""`peltier worker`, whose trainings are done by a process."""

import asyncio
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from peltier_backbone.backbone import Backbone
from peltier_server.app import create_app
from peltier_server.extensions.settings import load_settings
from peltier_store.registry.extensions.queue_records import StoredTraining
from peltier_training.service.command import worker
from peltier_training.service.worker import open_scratch

from tests.server.conftest import make_client
from tests.training.service.conftest import Queue, jsonl, opened, praise, request

_COMMAND = f"import typer; from {worker.__module__} import {worker.__name__}; typer.run({worker.__name__})"


@contextmanager
def started(queue: Queue, bert: Backbone, scratch: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a session of its own, of which nothing is left."""
    store = str(queue.location.blobs.parent)  # type: ignore[union-attr]
    flags = ("--store", store, "--backbone", bert.name, "--device", "cpu", "--threads", "1", "--nice", "0", *flags)
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with (scratch / "log").open("wb") as output:
        command = [sys.executable, "-c", _COMMAND, *flags]
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_once_ends_when_nothing_waits(bert, tmp_path, scratch, caplog, monkeypatch):
    """What waits is trained by a process of its own and left to be published, after which a server with the store
    answers with it; the log names the training and its metrics, and no text of it."""
    monkeypatch.setattr("peltier_training.service.worker.open_scratch", partial(open_scratch, scratch))
    caplog.set_level(logging.WARNING, "alembic")  # the command sets it, and here it is set back
    caplog.set_level(logging.INFO)

    async def add() -> StoredTraining:
        async with opened(tmp_path / "store") as queue:
            return await queue.add(jsonl(praise()))

    async def find(training: StoredTraining) -> tuple[StoredTraining, list[str]]:
        async with opened(tmp_path / "store") as queue:
            return await queue.find(training), await queue.log(training, "state")

    training = asyncio.run(add())
    worker(store=str(tmp_path / "store"), backbone=bert.name, device="cpu", threads=1, name="mine", once=True)
    found, states = asyncio.run(find(training))
    assert found.state == "publishing"
    assert "The worker mine has begun the training." in states
    assert f"{training.id}: accuracy" in caplog.text
    assert "film" not in caplog.text
    assert "Traceback" not in caplog.text
    assert os.listdir(scratch) == []
    answer = asyncio.run(predict_once_published(tmp_path / "store", bert, training, "the film is very good"))
    assert answer["adapter"]["version"] == 1
    assert answer["predictions"][0]["label"] == "positive"


async def predict_once_published(store: Path, backbone: Backbone, training: StoredTraining, text: str) -> Any:
    """The answer of a server with this store, once it has published what a worker left."""
    settings = {"device": "cpu", "threads": 1, "backbone": backbone.name, "store": store}
    app = create_app(load_settings(settings))
    async with app.router.lifespan_context(app), make_client(app) as client, asyncio.timeout(60):
        await app.state.lifecycle.settled()
        async with client.stream("GET", f"/v1/trainings/{training.id}/events") as events:
            await events.aread()
        answer = await client.post(f"/v1/tasks/{training.task}/predict", json={"inputs": text})
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.mark.slow  # a worker in the process of the test stays in the gate
def test_once_ends_with_status_0(queue: Queue, bert: Backbone, scratch: Path):
    """Of a process for which nothing waits."""
    with started(queue, bert, scratch, "--once") as process:
        assert process.wait(120) == 0, (scratch / "log").read_text()


@pytest.mark.slow
async def test_a_signal_gives_the_training_back(queue: Queue, bert: Backbone, scratch: Path):
    """And ends the worker with status 0, with nothing on the disk. Its name is no other worker's."""
    training = await queue.add(jsonl(praise()), request(settings={"epochs": 10_000}))
    with started(queue, bert, scratch) as process:
        deadline = time.monotonic() + 300
        while not (await queue.find(training)).progress and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, (scratch / "log").read_text()
    found = await queue.find(training)
    assert (found.state, found.holder, found.attempts) == ("queued", None, 0)
    begun = rf"The worker {re.escape(socket.gethostname())}:{process.pid}:[0-9a-f]{{8}} has begun the training\."
    assert any(re.fullmatch(begun, sentence) for sentence in await queue.log(training, "state"))
    assert [name for name in os.listdir(scratch) if name.startswith("peltier-worker-")] == []


@pytest.mark.slow
def test_a_missing_backbone_is_told_at_once(tmp_path: Path):
    """Before a training is claimed."""
    command = [sys.executable, "-c", _COMMAND, "--store", str(tmp_path / "store"), "--backbone", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "none" in done.stderr
    assert not (tmp_path / "store").exists()
