"""Completions of many prompts with stop sequences: each is a text and starts like items of a mixed request."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from peltier_server.fairness.preparation import MAX_ITEMS_BEGUN

from tests.server.conftest import Running, until

NUM_PROMPTS = MAX_ITEMS_BEGUN + 40


@pytest.fixture
async def writing(serve, t5, t5_directory, make_artifact):
    async with serve(backbone=t5_directory) as running:
        assert (await running.upload(make_artifact(t5, "bitfit", task_type="text2text"), "text")).status_code == 201
        yield running


def complete(running: Running, prompts: list[str]) -> "asyncio.Task[httpx2.Response]":
    body = {"model": "text", "prompt": prompts, "max_tokens": 1, "stop": "zzz"}
    return asyncio.ensure_future(running.client.post("/v1/completions", json=body))


@asynccontextmanager
async def held(running: Running) -> AsyncIterator[None]:
    released, holding = threading.Event(), threading.Event()
    take = running.service.batcher.next

    def wait(**options: Any) -> Any:
        holding.set()
        released.wait(60)
        return take(**options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.service.batcher, "next", wait)
        # A runner that already waits gets a text, so that it comes back for the next.
        await complete(running, ["bad"])
        await asyncio.to_thread(holding.wait, 60)
        try:
            yield
        finally:
            released.set()


async def test_few_prompts_are_begun_at_a_time(writing: Running) -> None:
    """Of all requests of a tenant as many as of mixed items, and all of its inputs count once; all are answered."""
    batcher, preparation = writing.service.batcher, writing.app.state.preparation
    async with held(writing):
        waiting = complete(writing, ["a good film"] * NUM_PROMPTS)
        await until(lambda: len(batcher._drafts) > MAX_ITEMS_BEGUN - 16)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(batcher._drafts) <= MAX_ITEMS_BEGUN
        assert preparation.inputs.total == NUM_PROMPTS
        gone = complete(writing, ["bad"] * NUM_PROMPTS)
        await until(lambda: preparation.inputs.total == 2 * NUM_PROMPTS)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
    answer = (await waiting).json()
    assert [choice["index"] for choice in answer["choices"]] == list(range(NUM_PROMPTS))
    assert answer["usage"]["prompt_tokens"] == 8 * NUM_PROMPTS
    await until(lambda: preparation.room_for_items("default").num_free == MAX_ITEMS_BEGUN)
    assert preparation.inputs.total == 0


async def test_others_have_the_loop_between_prompts(writing: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = writing.service.predictor
    begin, num_begun = predictor.stream, 0

    def count(*given: Any, row: int) -> Any:
        nonlocal num_begun
        num_begun += 1
        return begin(*given, row=row)

    monkeypatch.setattr(predictor, "stream", count)
    answer, most = complete(writing, ["bad"] * 100), 0
    while not answer.done():
        before = num_begun
        await asyncio.sleep(0)
        most = max(most, num_begun - before)
    assert (answer.result().status_code, num_begun) == (200, 100)
    assert most <= 16


async def test_a_prompt_that_fails_ends_the_others(writing: Running) -> None:
    """The answer is its error alone, with its number, and nothing stays in progress."""
    preparation = writing.app.state.preparation
    answer = await complete(writing, ["bad"] * 40 + ["good " * 80] + ["bad"] * 40)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("input 40: the input has 85 tokens")
    await until(lambda: preparation.inputs.total == 0)
    assert preparation.room_for_items("default").num_free == MAX_ITEMS_BEGUN
