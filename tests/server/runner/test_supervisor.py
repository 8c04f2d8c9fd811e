"""The thread that owns the device: failures stay with the rows that cause them."""

import asyncio
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.choice import choose_runner
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row, RowOutput
from peltier_adapters.inputs import encode_input
from peltier_adapters.residency.bank import Banks
from peltier_adapters.spec.decoding import Decoding
from peltier_backbone.backbone import Backbone
from peltier_client.errors import InferenceFailed, Unavailable
from peltier_server.metrics.metrics import Metrics
from peltier_server.queue.batch import BatchBounds, BatchRoom
from peltier_server.queue.batcher import Batcher
from peltier_server.queue.fair_queue import FairQueue
from peltier_server.queue.ticket import Terms, Ticket
from peltier_server.runner import isolation
from peltier_server.runner.isolation import Bisection, ComputeGuard
from peltier_server.runner.supervisor import BACKGROUND_SLOWDOWN, WorkerSupervisor
from peltier_server.runner.worker import BACKGROUND_NICENESS


@pytest.fixture
def batcher() -> Batcher:
    return Batcher(BatchBounds(100, 1000), max_queue_tokens=1000, max_decode_rows=4)


@contextmanager
def supervised(backbone: Backbone, batcher: Batcher, metrics: Metrics | None = None) -> Iterator[WorkerSupervisor]:
    """A runner that takes what the batcher gives; at the end it has computed all of it."""
    started = WorkerSupervisor(backbone, batcher, metrics or Metrics(), num_threads=1)
    started.start()
    try:
        yield started
    finally:
        batcher.close()
        started.join(60)


@pytest.fixture
def runner(bert: Backbone, batcher: Batcher) -> Iterator[WorkerSupervisor]:
    with supervised(bert, batcher) as started:
        yield started


@pytest.fixture
def rows(bert: Backbone, make_artifact: Callable[..., bytes]) -> list[Row]:
    """Three rows of one adapter, of different lengths."""
    resident = Banks(bert).add(read_artifact(make_artifact(bert), bert))
    texts = ("a good film", "bad", "the plot was very dull")
    return [Row(encode_input(bert, resident.task, text), resident) for text in texts]


def poison(monkeypatch: pytest.MonkeyPatch, bad: Sequence[Row], act: Callable[[], Any]) -> None:
    """Makes the forward do `act` whenever one of `bad` is in the batch."""

    def poisoned(backbone: Backbone, batch: Sequence[Row], **options: Any) -> list[RowOutput]:
        outputs = forward(backbone, batch, **options)
        return [act() if any(row is one for one in bad) else output for row, output in zip(batch, outputs, strict=True)]

    monkeypatch.setattr(isolation, "forward", poisoned)


def fail() -> None:
    raise RuntimeError("CUDA error: a kernel met a bad row")


async def test_rows_get_their_own_outputs(runner, batcher, bert, rows):
    outcome = await batcher.compute(rows)
    expected = forward(bert, rows)
    assert all(torch.equal(one.logits, two.logits) for one, two in zip(outcome.outputs, expected, strict=True))
    assert (outcome.batch_rows, outcome.batch_adapters) == (3, 1)


class Panic(BaseException):
    """What some libraries raise, past every handler of ordinary exceptions."""


def panic() -> None:
    raise Panic


@pytest.mark.parametrize("act", [fail, panic], ids=["exception", "panic"])
async def test_a_bad_row_fails_alone(runner, batcher, rows, monkeypatch, act):
    poison(monkeypatch, [rows[1]], act)
    requests = [asyncio.ensure_future(batcher.compute([row])) for row in rows]
    answers = await asyncio.gather(*requests, return_exceptions=True)
    assert [isinstance(answer, InferenceFailed) for answer in answers] == [False, True, False]
    assert "CUDA" not in str(answers[1])
    assert await batcher.compute([rows[0]])


@given(bad=st.sets(st.integers(0, 8)))
@settings(max_examples=settings().max_examples // 5, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bad_rows_fail_alone(bert: Backbone, rows: list[Row], bad: set[int]) -> None:
    many = [replace(row) for row in rows * 3]
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, [many[place] for place in bad], fail)
        outputs = Bisection(bert, choose_runner(bert), ComputeGuard()).compute(many, record_gates=False)
    for place, output in enumerate(outputs):
        if place in bad:
            assert isinstance(output, InferenceFailed)
        else:
            assert torch.allclose(output.logits, forward(bert, [many[place]])[0].logits, atol=1e-5)


class Replays:
    """A graph for every batch."""

    cleared = False

    def compute(self, rows: Sequence[Row]) -> list[torch.Tensor]:
        return [torch.tensor([7.0])] * len(rows)

    def clear(self) -> None:
        self.cleared = True


def test_graphs_compute_batches_and_make_room_for_rows(bert: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that has one is a replay; where memory is short they go first."""
    graphs = Replays()
    computing = Bisection(bert, choose_runner(bert), ComputeGuard(), graphs)  # type: ignore[arg-type]
    bare = [Row(bert.tokenizer.encode(text)) for text in ("a good film", "bad")]
    assert [output.logits.item() for output in computing.compute(bare, record_gates=False)] == [7.0, 7.0]
    poison(monkeypatch, bare[:1], refuse_memory)
    assert isinstance(computing.compute(bare[:1], record_gates=False)[0], Unavailable)
    assert graphs.cleared


def refuse_memory() -> None:
    """What the allocator of the CPU says, and no more particularly than this."""
    torch.empty(1 << 60, dtype=torch.uint8)


def lack_memory() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


@pytest.mark.parametrize("act", [refuse_memory, lack_memory], ids=["cpu", "cuda"])
async def test_rows_that_are_too_many_for_the_memory_are_halved(runner, bert, batcher, rows, monkeypatch, act):
    sizes = []

    def narrow(backbone: Backbone, batch: Sequence[Row], **options: Any) -> list[RowOutput]:
        sizes.append(len(batch))
        if len(batch) > 2:
            act()
        return forward(backbone, batch, **options)

    monkeypatch.setattr(isolation, "forward", narrow)
    outcome = await batcher.compute(rows * 2)
    assert sizes == [6, 3, 1, 2, 3, 1, 2]
    for output, row in zip(outcome.outputs, rows * 2, strict=True):
        assert torch.allclose(output.logits, forward(bert, [row])[0].logits, atol=1e-5)


async def test_a_row_that_does_not_fit_alone_may_come_back(runner, batcher, rows, monkeypatch):
    """It is the memory's fault and not the input's, and its neighbours are answered."""
    poison(monkeypatch, [rows[1]], refuse_memory)
    requests = [asyncio.ensure_future(batcher.compute([row])) for row in rows]
    answers = await asyncio.gather(*requests, return_exceptions=True)
    assert [isinstance(answer, Unavailable) for answer in answers] == [False, True, False]
    assert "too little memory" in str(answers[1])
    assert answers[1].retry_after == 1


async def test_what_fails_around_a_batch_fails_the_batch(runner, batcher, rows, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Metrics, "observe_batch", lambda *_: 1 / 0)
        with pytest.raises(InferenceFailed, match="the server failed while it computed this input"):
            await batcher.compute([rows[0]])
    assert await batcher.compute(rows)


@pytest.mark.parametrize(
    ("owner", "method", "at_call"),
    [(Batcher, "_take_late", 2), (BatchRoom, "admits", 1), (BatchRoom, "admits", 3), (FairQueue, "take", 2)],
    ids=["before", "at-the-first", "between", "after"],
)
async def test_a_queue_that_fails_loses_nobody(runner, bert, batcher, rows, monkeypatch, owner, method, at_call):
    """Wherever it fails for once while it hands out rows, each of them is computed, and the loop lives on."""
    rows = [rows[0], replace(rows[1], bare=True), rows[2]]  # a row of another kind is another ticket
    failed = fail_once(monkeypatch, owner, method, at_call)
    async with asyncio.timeout(60):
        outcome = await batcher.compute(rows)
    assert failed.is_set()
    for output, row in zip(outcome.outputs, rows, strict=True):
        assert torch.allclose(output.logits, forward(bert, [row])[0].logits, atol=1e-5)
    assert batcher.queued_tokens == 0


async def test_a_queue_of_long_rows_that_fails_loses_nobody(both, long_batcher, bert, rows, monkeypatch):
    rows = [rows[0], replace(rows[0], bare=True), rows[2]]
    failed = fail_once(monkeypatch, BatchRoom, "admits", 2)
    async with asyncio.timeout(60):
        outcome = await long_batcher.compute(rows)
    assert failed.is_set()
    for output, row in zip(outcome.outputs, rows, strict=True):
        assert torch.allclose(output.logits, forward(bert, [row])[0].logits, atol=1e-5)
    assert long_batcher.queued_tokens == 0


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, at_call: int) -> threading.Event:
    """Makes one call of a method raise; returns what is set then."""
    act, calls, failed = getattr(owner, method), count(1), threading.Event()

    def faulty(*given: Any, **named: Any) -> Any:
        if next(calls) == at_call:
            failed.set()
            raise ArithmeticError("the queue is out of order")
        return act(*given, **named)

    monkeypatch.setattr(owner, method, faulty)
    return failed


async def test_two_threads_may_compute_at_once(bert: Backbone, rows: list[Row]) -> None:
    """The forward pass shares no state, so an abandoned batch that continues has no effect on others."""
    expected = [output.logits for output in forward(bert, rows)]

    def compute() -> list[torch.Tensor]:
        return [output.logits for _ in range(50) for output in forward(bert, rows)]

    for found in await asyncio.gather(*(asyncio.to_thread(compute) for _ in range(2))):
        assert all(torch.equal(one, two) for one, two in zip(found, expected * 50, strict=True))


@pytest.fixture
def long_batcher() -> Batcher:
    """Rows of more than three tokens are long."""
    return Batcher(BatchBounds(100, 1000, max_short_tokens=3), max_queue_tokens=1000, max_decode_rows=4)


@pytest.fixture
def both(bert: Backbone, long_batcher: Batcher) -> Iterator[WorkerSupervisor]:
    with supervised(bert, long_batcher) as started:
        yield started


async def test_short_rows_do_not_wait_for_a_long_one(both, long_batcher, bert, rows, monkeypatch):
    """It is computed meanwhile by a thread with a lower priority, which ends afterwards; a request may have both."""
    release, priorities, outputs = threading.Event(), dict[str, int](), forward(bert, rows)

    def wait() -> RowOutput:
        assert release.wait(60)
        priorities[threading.current_thread().name] = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        return outputs[2]

    poison(monkeypatch, [rows[2]], wait)
    long = asyncio.ensure_future(long_batcher.compute(rows))
    short = await long_batcher.compute([rows[1]])
    assert torch.allclose(short.outputs[0].logits, outputs[1].logits, atol=1e-5)
    assert not long.done()
    release.set()
    for found, expected in zip((await long).outputs, outputs, strict=True):
        assert torch.allclose(found.logits, expected.logits, atol=1e-5)
    assert both._background is not None
    both._background.thread.join(60)
    assert not both._background.thread.is_alive()
    if sys.platform == "linux":
        assert priorities == {"background runner": min(os.nice(0) + BACKGROUND_NICENESS, 19)}
    assert (await long_batcher.compute([rows[0]])).batch_rows == 1


async def test_a_stuck_background_is_replaced(both, long_batcher, rows, monkeypatch):
    """After a longer time than the other thread. Its callers get an error; the next long row is computed."""
    release, entered = threading.Event(), threading.Event()

    def wait() -> RowOutput:
        entered.set()
        release.wait(60)
        return RowOutput(torch.zeros(2))

    poison(monkeypatch, [rows[2]], wait)
    stuck = asyncio.ensure_future(long_batcher.compute([rows[2]]))
    await asyncio.to_thread(entered.wait, 60)
    began = both._background
    assert not both.replace_worker(3600 / BACKGROUND_SLOWDOWN)
    assert both.replace_worker(0)
    with pytest.raises(InferenceFailed, match="did not end within 0 s and was abandoned"):
        await stuck
    assert both._background is not began
    assert await long_batcher.compute([rows[0]])
    assert not both.is_well
    release.set()


async def test_a_cancelled_request_leaves_no_trace(runner: WorkerSupervisor, batcher: Batcher, rows: list[Row]) -> None:
    request = asyncio.ensure_future(batcher.compute(rows))
    await asyncio.sleep(0)
    request.cancel()
    assert await batcher.compute([rows[0]])
    assert request.cancelled()


async def test_every_written_token_is_charged_to_its_tenant(t5: Backbone) -> None:
    """One a step for each text, and for each beam of it, the end among them: what was asked of the queue's shares."""
    charged = Counter[str]()

    class Charging(Batcher):
        def charge(self, tokens_by_tenant: Mapping[str, int]) -> None:
            charged.update(tokens_by_tenant)
            super().charge(tokens_by_tenant)

    batcher = Charging(BatchBounds(100, 1000), max_queue_tokens=1000, max_decode_rows=8)
    metrics, row = Metrics(), Row(t5.tokenizer.encode("a good film"))
    with supervised(t5, batcher, metrics):
        two, beams = await asyncio.gather(
            batcher.write([row, row], [Decoding(3), Decoding(5)], Terms("a")),
            batcher.write([row], [Decoding(4, num_beams=3)], Terms("b")),
        )
    steps = [len(draft.ids) + (draft.finish == "stop") for draft in two.outputs]
    assert charged["a"] == sum(steps)
    assert charged["b"] % 3 == 0
    assert charged["b"] >= 3 * len(beams.outputs[0].ids)
    assert metrics.generated_tokens._value.get() == charged["a"] + charged["b"] // 3


async def test_texts_teach_what_they_cost(t5: Backbone) -> None:
    """Every step, each with its texts; the first one with the first pass of those that begin together."""
    passes, steps = list[int](), list[int]()

    class Learning(Batcher):
        def learn_step(self, tickets: Sequence[Ticket], seconds: float, *, joined: Sequence[Ticket] = ()) -> None:
            assert seconds > 0
            passes.append(len(joined))
            steps.append(len(tickets))

    batcher = Learning(BatchBounds(100, 1000), max_queue_tokens=1000, max_decode_rows=8)
    row = Row(t5.tokenizer.encode("a good film"))
    with supervised(t5, batcher):
        found = await batcher.write([row, row], [Decoding(3), Decoding(5)])
    assert passes == [2, *[0] * (len(steps) - 1)]
    assert sum(steps) == sum(len(draft.ids) + (draft.finish == "stop") for draft in found.outputs)


async def test_an_output_that_cannot_be_reduced_fails_alone(runner, batcher, rows):
    """Requests get what they make of their outputs; another request of the batch is answered."""

    def reduce(row: Row, output: RowOutput) -> float:
        if row is rows[1]:
            fail()
        return float(output.logits[0])

    requests = [asyncio.ensure_future(batcher.compute([row], reduce=reduce)) for row in rows]
    first, second, third = await asyncio.gather(*requests, return_exceptions=True)
    assert isinstance(second, InferenceFailed)
    assert not isinstance(first, BaseException)
    assert not isinstance(third, BaseException)
    assert [type(value) for value in (*first.outputs, *third.outputs)] == [float, float]
