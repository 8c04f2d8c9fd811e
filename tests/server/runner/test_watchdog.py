"""A computation that does not end: its callers get an error, and everything else continues."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
import pytest
from peltier_adapters.batch.row import Row, RowOutput
from peltier_backbone.backbone import Backbone
from peltier_server.queue.batch import TicketBatch
from peltier_server.runner import isolation, supervisor
from peltier_server.runner.decoder import DecodeGroup
from peltier_server.runner.worker import Worker

from tests.server.conftest import Running, until
from tests.support.server_process import Server

ServeDemo = Callable[..., AbstractAsyncContextManager[Running]]
Hang = Callable[..., threading.Event]
BreakQueue = Callable[[Running], threading.Event]
# Four tokens with those that begin and end it; no golden example has as many.
_ENDLESS = "good film"
# A batch with such a text never ends, and is taken for stuck at once.
_ENDLESS_BATCH = """
import threading, time
from peltier_server.runner import isolation

forward = isolation.forward

def endless(backbone, rows, **options):
    if any(len(row.encoded) == 4 for row in rows):
        worker = threading.current_thread()._target.__self__
        worker._guard._began_at = float("-inf")
        time.sleep(600)
    return forward(backbone, rows, **options)

isolation.forward = endless
"""


# "bad" has three tokens, with those that begin and end it.
BAD = 3


def overdue() -> None:
    """Makes the computation of this thread last for longer than any bound."""
    threading.current_thread()._target.__self__._guard._began_at = float("-inf")


@pytest.fixture
def serve_demo(serve, bert, make_artifact, monkeypatch):
    """`async with serve_demo(**settings) as running`: a server that looks often for what is stuck, with the task
    `demo`; over another backbone and of another type where they are given."""
    monkeypatch.setattr(supervisor, "_MAX_PAUSE_SECONDS", 0.01)

    @asynccontextmanager
    async def start(backbone=bert, task_type="classification", **settings):
        async with serve(backbone=backbone.name, **settings) as running:
            await running.upload(make_artifact(backbone, task_type=task_type))
            yield running

    return start


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Ends what hangs, at the latest with the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch, release: threading.Event) -> Hang:
    """`hang()`: from now on every forward of a row of `BAD` tokens waits for `release`, and is overdue, where `late` is
    given once that is set; returns what is set once such a one has ended."""
    forward, ended = isolation.forward, threading.Event()

    def begin(late: threading.Event | None = None) -> threading.Event:
        def stuck(backbone: Backbone, rows: Sequence[Row], **options: Any) -> list[RowOutput]:
            waits = any(len(row.encoded) == BAD for row in rows)
            if waits:
                assert late is None or late.wait(60)
                overdue()
                release.wait(60)
            outputs = forward(backbone, rows, **options)
            if waits:
                ended.set()
            return outputs

        monkeypatch.setattr(isolation, "forward", stuck)
        return ended

    return begin


async def ready(running: Running) -> httpx2.Response:
    """`GET /ready`."""
    return await running.client.get("/ready")


async def until_ready(running: Running) -> None:
    """Returns once `GET /ready` is 200; fails after a minute."""
    async with asyncio.timeout(60):
        while (await ready(running)).status_code != 200:  # noqa: ASYNC110 - it tells nobody who does not ask
            await asyncio.sleep(0.05)


async def test_a_stuck_batch_fails_and_the_next_ones_do_not(serve_demo, hang, release):
    """Its callers read 424 with the reason; those who waited behind it are answered, by another thread, and so are
    those who come later. Where the lost thread comes back, nothing changes."""
    async with serve_demo() as running:
        before = await running.scores("demo", "a good film")
        late = threading.Event()
        ended = hang(late)
        stuck = asyncio.ensure_future(running.predict("demo", "bad"))
        await until(lambda: running.service._supervisor._worker._guard._began_at)
        behind = asyncio.ensure_future(running.predict("demo", "a good film"))
        await until(lambda: running.service.batcher.queued_tokens)
        late.set()
        answer = await stuck
        assert (answer.status_code, answer.json()["error"]["code"]) == (424, "inference_failed")
        assert "did not end within 60 s and was abandoned" in answer.json()["error"]["message"]
        assert (await behind).status_code == 200
        assert await running.scores("demo", "a good film") == before
        assert "peltier_runner_restarts_total 1.0" in (await running.client.get("/metrics")).text
        release.set()
        assert await asyncio.to_thread(ended.wait, 60)
        await until(lambda: not running.service._supervisor._stuck)
        assert await running.scores("demo", "a good film") == before
        assert (await ready(running)).status_code == 200


async def test_a_lost_thread_keeps_no_room_from_others(serve_demo, bert, make_artifact, hang, release):
    """What is deleted while a stuck batch reads it leaves the device's budget at once."""
    async with serve_demo() as running:
        await running.upload(make_artifact(bert, name="other", seed=1))
        for name in ("demo", "other"):
            await running.scores(name, "a good film")
        slots = running.service.slots
        hang()
        assert (await running.predict("demo", "bad")).status_code == 424
        for name in ("demo", "other"):
            assert (await running.client.delete(f"/v1/adapters/{name}")).status_code == 204
        await until(lambda: slots.device.used_bytes == 0)
        release.set()


async def test_a_stuck_step_fails_its_texts(serve_demo, t5, monkeypatch, release):
    """The decoder of the new thread begins empty, and writes what it is asked for next."""
    step = DecodeGroup.step
    async with serve_demo(t5, "text2text") as running:
        expected = (await running.predict("demo", "a good film")).json()["predictions"]
        with monkeypatch.context() as patch:
            patch.setattr(DecodeGroup, "step", lambda self: (overdue(), release.wait(60), step(self))[-1])
            answers = await asyncio.gather(*(running.predict("demo", "a good film") for _ in range(3)))
            assert {answer.status_code for answer in answers} == {424}
        assert (await running.predict("demo", "a good film")).json()["predictions"] == expected


@pytest.mark.parametrize("kind", ["row", "text"])
async def test_a_device_that_a_failure_has_broken_is_noticed(kind, serve_demo, t5, monkeypatch):
    """After a row that fails, and after a text that does, the device is tried; while it does not answer, the server is
    not ready."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    task_type = "text2text" if kind == "text" else "classification"
    async with serve_demo(t5, task_type, max_runner_restarts=1000) as running:
        with monkeypatch.context() as patch:  # the server ends only with a device that answers, or after long
            patch.setattr(*((DecodeGroup, "step") if kind == "text" else (isolation, "forward")), fail)
            patch.setattr("peltier_server.runner.worker.torch.ones", fail)
            assert (await running.predict("demo", "a good film")).status_code == 424
            await until(lambda: running.service.watchdog._unproven_since is not None)


async def test_readiness_waits_for_a_thread_that_can_use_the_device(serve_demo, monkeypatch, hang, release):
    """/ready is 503 with the reason, /health stays 200, and both are 200 once the device answers."""
    prove = Worker._check_device

    def deaf(worker: Worker) -> None:
        if not release.is_set():
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        prove(worker)

    async with serve_demo(max_runner_restarts=1000) as running:
        hang()
        monkeypatch.setattr(Worker, "_check_device", deaf)
        assert (await running.predict("demo", "bad")).status_code == 424
        answer, health = await ready(running), await running.client.get("/health")
        assert (answer.status_code, answer.json()["error"]["code"], health.status_code) == (503, "not_ready", 200)
        assert "the runner is stuck" in answer.json()["error"]["message"]
        release.set()
        assert await running.scores("demo", "a good film")
        await until_ready(running)


@pytest.fixture
def break_queue(monkeypatch: pytest.MonkeyPatch) -> BreakQueue:
    """`break_queue(running)`: the queue fails whenever the runner comes for rows, until what it returns is set."""

    def begin(running: Running) -> threading.Event:
        take, mended = running.service.batcher._take, threading.Event()

        def faulty(*live: int) -> TicketBatch:
            if not mended.is_set():
                raise ArithmeticError("the queue is out of order")
            return take(*live)

        monkeypatch.setattr(running.service.batcher, "_take", faulty)
        return mended

    return begin


async def test_a_server_whose_queue_fails_at_every_turn_is_given_up(serve_demo, break_queue):
    """/ready is 503 all the time, and after as many bounds as a thread may be stuck it is the server's failure."""
    async with serve_demo(max_runner_restarts=1) as running:
        mended = break_queue(running)
        waiting = asyncio.ensure_future(running.predict("demo", "a good film"))
        lifecycle = running.app.state.lifecycle
        watching = running.service.watchdog
        await until(lambda: watching._unproven_since)
        while lifecycle.failure is None:
            answer = await ready(running)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
            watching._unproven_since = float("-inf")
            await asyncio.sleep(0.01)
        assert str(lifecycle.failure) == "the runner was stuck 2 times in a row; see the log"
        mended.set()
        await waiting


async def test_a_queue_that_has_failed_answers_who_waited_in_it(serve_demo: ServeDemo, break_queue: BreakQueue) -> None:
    async with serve_demo(max_runner_restarts=1000) as running:
        before = await running.scores("demo", "a good film")
        mended = break_queue(running)
        waiting = asyncio.ensure_future(running.scores("demo", "a good film"))
        await until(lambda: running.service.watchdog._unproven_since)
        assert (await ready(running)).status_code == 503
        mended.set()
        assert await waiting == before
        await until_ready(running)


async def test_a_queue_that_has_failed_is_ready_without_a_request(serve_demo, break_queue):
    """A server that is not ready gets no requests, so it must detect the recovery itself."""
    async with serve_demo(max_runner_restarts=1000) as running:
        mended = break_queue(running)
        leaving = asyncio.ensure_future(running.predict("demo", "a good film"))
        await until(lambda: running.service.watchdog._unproven_since)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        mended.set()
        await until_ready(running)


async def test_a_runner_that_is_stuck_again_and_again_is_given_up(serve_demo: ServeDemo, hang: Hang) -> None:
    """After as many restarts as are allowed, the next one is the server's failure, and says so."""
    async with serve_demo(max_runner_restarts=1) as running:
        hang()
        lifecycle = running.app.state.lifecycle
        assert (await running.predict("demo", "bad")).status_code == 424
        assert lifecycle.failure is None
        assert (await running.predict("demo", "bad")).status_code == 424
        await until(lambda: lifecycle.failure)
        assert str(lifecycle.failure) == "the runner was stuck 2 times in a row; see the log"
        answer = await ready(running)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")


@pytest.mark.slow
def test_a_process_without_a_runner_ends(bert, bert_directory, tmp_path, make_artifact):
    """With status 1 and the reason, so that a supervisor starts it anew; until then /health is 200."""
    flags = ["--backbone", str(bert_directory), "--store", str(tmp_path / "store")]
    bounds = {"PELTIER_MAX_RUNNER_RESTARTS": "1"}
    server = Server(tmp_path / "log", *flags, first=_ENDLESS_BATCH, **bounds)
    try:
        server.wait_until_ready()
        server.upload(make_artifact(bert)).raise_for_status()
        assert [server.predict(_ENDLESS).status_code for _ in range(2)] == [424, 424]
        assert server.process.wait(60) == 1
    finally:
        server.end()
    assert server.log.rstrip().endswith("error: the runner was stuck 2 times in a row; see the log")
