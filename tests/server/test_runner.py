"""The thread that owns the device: failures stay with the rows that cause them."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from peltier_adapters.artifact import read_artifact
from peltier_adapters.bank import Banks
from peltier_adapters.batch import forward
from peltier_adapters.inputs import encode_input
from peltier_adapters.row import Row, RowOutput
from peltier_backbone.load import Backbone
from peltier_client.errors import InferenceFailed
from peltier_server import runner as runner_module
from peltier_server.batcher import Batcher
from peltier_server.metrics import Metrics
from peltier_server.runner import Runner


@pytest.fixture
def batcher() -> Batcher:
    return Batcher(max_batch_tokens=1000, max_batch_rows=100, max_queue_tokens=1000, max_decode_rows=4)


@pytest.fixture
def runner(bert: Backbone, batcher: Batcher) -> Iterator[Runner]:
    started = Runner(bert, batcher, Metrics(), num_threads=1)
    started.start()
    yield started
    batcher.close()
    started.join(5)


@pytest.fixture
def rows(bert: Backbone, make_artifact: Callable[..., bytes]) -> list[Row]:
    """Three rows of one adapter, of different lengths."""
    resident = Banks(bert).add(read_artifact(make_artifact(bert), bert))
    texts = ("a good film", "bad", "the plot was very dull")
    return [Row(encode_input(bert, resident.manifest.task, text), resident) for text in texts]


def poison(monkeypatch: pytest.MonkeyPatch, bad: Row, act: Callable[[], Any]) -> None:
    """Makes the forward do `act` whenever `bad` is in the batch."""

    def poisoned(backbone: Backbone, batch: Sequence[Row], *, record_gates: bool) -> list[RowOutput]:
        outputs = forward(backbone, batch, record_gates=record_gates)
        return [act() if row is bad else output for row, output in zip(batch, outputs, strict=True)]

    monkeypatch.setattr(runner_module, "forward", poisoned)


def fail() -> None:
    raise RuntimeError("CUDA error: a kernel met a bad row")


async def test_rows_get_their_own_outputs(runner: Runner, batcher: Batcher, bert: Backbone, rows: list[Row]) -> None:
    """What the queue gives back is what the forward computes."""
    outcomes = await batcher.compute(rows)
    expected = forward(bert, rows)
    assert all(torch.equal(one.output.logits, two.logits) for one, two in zip(outcomes, expected, strict=True))
    assert {(one.batch_rows, one.batch_adapters) for one in outcomes} == {(3, 1)}


async def test_a_bad_row_fails_alone(
    runner: Runner, batcher: Batcher, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its neighbours of other requests are answered, and the loop lives on."""
    poison(monkeypatch, rows[1], fail)
    requests = [asyncio.ensure_future(batcher.compute([row])) for row in rows]
    answers = await asyncio.gather(*requests, return_exceptions=True)
    assert [isinstance(answer, InferenceFailed) for answer in answers] == [False, True, False]
    assert "CUDA" not in str(answers[1])
    assert await batcher.compute([rows[0]])


async def test_a_row_that_is_not_finite_fails_alone(
    runner: Runner, batcher: Batcher, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN is never sent as an answer."""
    poison(monkeypatch, rows[1], lambda: RowOutput(torch.tensor([float("nan"), 1.0])))
    requests = [asyncio.ensure_future(batcher.compute([row])) for row in rows]
    answers = await asyncio.gather(*requests, return_exceptions=True)
    assert [isinstance(answer, InferenceFailed) for answer in answers] == [False, True, False]


async def test_an_errand_runs_while_nothing_is_queued(runner: Runner) -> None:
    """An idle runner still frees slots."""
    done: list[bool] = []
    await asyncio.wait_for(runner.between_batches(lambda: done.append(True)), 5)
    assert done == [True]


async def test_a_failed_errand_does_not_end_the_loop(runner: Runner, batcher: Batcher, rows: list[Row]) -> None:
    """Whatever happens between batches, batches go on."""
    await runner.between_batches(fail)
    assert await batcher.compute([rows[0]])


async def test_a_cancelled_request_leaves_no_trace(runner: Runner, batcher: Batcher, rows: list[Row]) -> None:
    """Nobody waits for the answer of a caller who is gone, and nothing breaks over it."""
    request = asyncio.ensure_future(batcher.compute(rows))
    await asyncio.sleep(0)
    request.cancel()
    assert await batcher.compute([rows[0]])
    assert request.cancelled()
