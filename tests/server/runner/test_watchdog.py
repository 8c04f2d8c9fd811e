"""A computation that does not end: its callers learn of it, and everything else goes on."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.row import Row, RowOutput
from peltier_backbone.load import Backbone
from peltier_server.runner import bisection
from peltier_server.runner.group import Group
from peltier_server.runner.worker import Worker

from tests.server.conftest import Serve, until
from tests.server_process import Server

SOON = {"max_batch_seconds": 0.3}
# Four tokens with those that begin and end it; no golden example has as many.
_ENDLESS = "good film"
# `peltier serve`, but a batch with such a text never ends. It stands before the command that it runs in its place.
_PROGRAM = """
import sys, time
from peltier_client.cli import main
from peltier_server.runner import bisection

forward = bisection.forward

def endless(backbone, rows, **options):
    if any(len(row.encoded) == 4 for row in rows):
        time.sleep(600)
    return forward(backbone, rows, **options)

bisection.forward = endless
sys.argv = sys.argv[3:]
main()
"""


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Ends what hangs, at the latest with the test."""
    event = threading.Event()
    yield event
    event.set()


def hang(monkeypatch: pytest.MonkeyPatch, on: int, release: threading.Event) -> threading.Event:
    """Lets every forward of a row of `on` tokens wait for `release`; returns what is set once it has ended."""
    forward, ended = bisection.forward, threading.Event()

    def stuck(backbone: Backbone, rows: Sequence[Row], **options: Any) -> list[RowOutput]:
        waits = any(len(row.encoded) == on for row in rows)
        if waits:
            release.wait(60)
        outputs = forward(backbone, rows, **options)
        if waits:
            ended.set()
        return outputs

    monkeypatch.setattr(bisection, "forward", stuck)
    return ended


# "bad" has three tokens, with those that begin and end it.
BAD = 3


async def test_a_stuck_batch_fails_and_the_next_ones_do_not(
    serve: Serve,
    bert: Backbone,
    make_artifact: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
    release: threading.Event,
) -> None:
    """Its callers read 424 with the reason; those who waited behind it are answered, by another thread, and so are
    those who come later. Where the lost thread comes back, nothing changes."""
    async with serve(**SOON) as running:
        await running.upload(make_artifact(bert))
        before = await running.scores("demo", "a good film")
        ended = hang(monkeypatch, BAD, release)
        stuck = asyncio.ensure_future(running.predict("demo", "bad"))
        await until(lambda: running.service._runner._worker._shift._began_at)
        behind = asyncio.ensure_future(running.predict("demo", "a good film"))
        answer = await stuck
        assert (answer.status_code, answer.json()["error"]["code"]) == (424, "inference_failed")
        assert "has not ended within 0.3 s and was given up" in answer.json()["error"]["message"]
        assert (await behind).status_code == 200
        assert await running.scores("demo", "a good film") == before
        assert "peltier_runner_restarts_total 1.0" in (await running.client.get("/metrics")).text
        release.set()
        await asyncio.to_thread(ended.wait, 10)
        await until(lambda: not running.service._runner._stuck)
        assert await running.scores("demo", "a good film") == before
        assert (await running.client.get("/ready")).status_code == 200


async def test_a_lost_thread_keeps_no_room_from_others(
    serve: Serve,
    bert: Backbone,
    make_artifact: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
    release: threading.Event,
) -> None:
    """What is deleted while a stuck batch reads it leaves the device's budget at once."""
    async with serve(**SOON) as running:
        for name in ("a", "b"):
            await running.upload(make_artifact(bert, name=name, seed=ord(name)))
            await running.scores(name, "a good film")
        slots = running.service.slots
        hang(monkeypatch, BAD, release)
        assert (await running.predict("a", "bad")).status_code == 424
        for name in ("a", "b"):
            assert (await running.client.delete(f"/v1/adapters/{name}")).status_code == 204
        await until(lambda: slots.used_bytes == 0)
        release.set()


async def test_a_stuck_step_fails_its_texts(
    serve: Serve,
    t5: Backbone,
    t5_directory: Path,
    make_artifact: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
    release: threading.Event,
) -> None:
    """The decoder of the new thread begins empty, and writes what it is asked for next."""
    step = Group.step
    async with serve(backbone=t5_directory, **SOON) as running:
        await running.upload(make_artifact(t5, task_type="text2text"))
        expected = (await running.predict("demo", "a good film")).json()["predictions"]
        with monkeypatch.context() as patch:
            patch.setattr(Group, "step", lambda self: release.wait(60) and step(self))
            answers = await asyncio.gather(*(running.predict("demo", "a good film") for _ in range(3)))
            assert {answer.status_code for answer in answers} == {424}
        assert (await running.predict("demo", "a good film")).json()["predictions"] == expected


@pytest.mark.parametrize("kind", ["row", "text"])
async def test_a_device_that_a_failure_has_broken_is_noticed(
    kind: str,
    serve: Serve,
    t5: Backbone,
    t5_directory: Path,
    make_artifact: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a row that fails, and after a text that does, the device is tried; while it does not answer, the server is
    not ready."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    async with serve(backbone=t5_directory, **SOON, max_runner_restarts=1000) as running:
        await running.upload(make_artifact(t5, task_type="text2text" if kind == "text" else "classification"))
        monkeypatch.setattr(*((Group, "step") if kind == "text" else (bisection, "forward")), fail)
        monkeypatch.setattr("peltier_server.runner.worker.torch.ones", fail)
        assert (await running.predict("demo", "a good film")).status_code == 424
        await until(lambda: running.service.watchdog._unproven_since is not None)


async def test_readiness_waits_for_a_thread_that_can_use_the_device(
    serve: Serve,
    bert: Backbone,
    make_artifact: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
    release: threading.Event,
) -> None:
    """/ready is 503 with the reason, /health stays 200, and both are 200 once the device answers."""
    prove = Worker._prove

    def deaf(worker: Worker) -> None:
        if not release.is_set():
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        prove(worker)

    async with serve(**SOON, max_runner_restarts=1000) as running:
        await running.upload(make_artifact(bert))
        hang(monkeypatch, BAD, release)
        monkeypatch.setattr(Worker, "_prove", deaf)
        assert (await running.predict("demo", "bad")).status_code == 424
        ready, health = [await running.client.get(path) for path in ("/ready", "/health")]
        assert (ready.status_code, ready.json()["error"]["code"], health.status_code) == (503, "not_ready", 200)
        assert "the runner is stuck" in ready.json()["error"]["message"]
        release.set()
        assert await running.scores("demo", "a good film")
        for _ in range(200):
            if (await running.client.get("/ready")).status_code == 200:
                break
            await asyncio.sleep(0.05)
        else:
            raise AssertionError("never ready again")


async def test_a_runner_that_is_stuck_again_and_again_is_given_up(
    serve: Serve,
    bert: Backbone,
    make_artifact: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
    release: threading.Event,
) -> None:
    """After as many restarts as are allowed, the next one is the server's failure, and says so."""
    async with serve(**SOON, max_runner_restarts=1) as running:
        await running.upload(make_artifact(bert))
        hang(monkeypatch, BAD, release)
        lifecycle = running.app.state.lifecycle
        assert (await running.predict("demo", "bad")).status_code == 424
        assert lifecycle.failure is None
        assert (await running.predict("demo", "bad")).status_code == 424
        await until(lambda: lifecycle.failure)
        assert str(lifecycle.failure) == "the runner was stuck 2 times in a row; see the log"
        ready = await running.client.get("/ready")
        assert (ready.status_code, ready.json()["error"]["code"]) == (503, "not_ready")


def test_a_process_without_a_runner_ends(
    bert: Backbone, bert_directory: Path, tmp_path: Path, make_artifact: Callable[..., bytes]
) -> None:
    """With status 1 and the reason, so that a supervisor starts it anew; until then /health is 200."""
    flags = ["--backbone", str(bert_directory), "--store", str(tmp_path / "store")]
    bounds = {"PELTIER_MAX_BATCH_SECONDS": "0.5", "PELTIER_MAX_RUNNER_RESTARTS": "1"}
    server = Server(tmp_path / "log", *flags, under=(sys.executable, "-c", _PROGRAM), **bounds)
    try:
        server.wait_until_ready()
        server.upload(make_artifact(bert)).raise_for_status()
        assert [server.predict(_ENDLESS).status_code for _ in range(2)] == [424, 424]
        assert server.process.wait(30) == 1
    finally:
        server.end()
    assert server.log.rstrip().endswith("error: the runner was stuck 2 times in a row; see the log")
