"""`peltier worker` as a process."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from peltier_backbone.backbone import Backbone
from peltier_training.service.command import worker

from tests.training.service.conftest import Queue, jsonl, praise, request

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


async def test_once_ends_when_nothing_waits(queue: Queue, bert: Backbone, scratch: Path):
    """With status 0; the log names the training and its metrics, and no text of it."""
    training = await queue.add(jsonl(praise()))
    with started(queue, bert, scratch, "--once", "--name", "mine") as process:
        assert process.wait(400) == 0, (scratch / "log").read_text()
    log = (scratch / "log").read_text()
    assert (await queue.find(training)).state == "publishing"
    assert "The worker mine has begun the training." in await queue.log(training, "state")
    assert f"{training.id}: accuracy" in log
    assert "film" not in log
    assert "Traceback" not in log


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
