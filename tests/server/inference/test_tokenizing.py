"""Texts become tokens in bounded pieces, by turns between tenants."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from peltier_server.fairness.preparation import MAX_PIECE_COST
from peltier_server.inference import tokenizing
from peltier_server.inference.tokenizing import split_inputs

from tests.server.conftest import IN_ONE_LOOP, Running, until
from tests.server.test_fairness import Shared, settle_in

# Short enough for the small task, and too long for the event loop.
LONG = "good " * 400
pytestmark = IN_ONE_LOOP


@pytest.fixture
def running(app_caller: Running) -> Running:
    """A new tenant of the module's server."""
    return app_caller


@contextmanager
def gated(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Semaphore, list[int], list[int]]]:
    """The two threads take a piece for each release of the semaphore; the lists have how many inputs each had that is
    taken, and each that a thread has begun to wait for."""
    gate, pieces, begun, encode = threading.Semaphore(0), list[int](), list[int](), tokenizing._encode

    def wait(reading: Any, max_chars: int, inputs: Any) -> Any:
        begun.append(len(inputs))
        gate.acquire(timeout=60)
        pieces.append(len(inputs))
        return encode(reading, max_chars, inputs)

    monkeypatch.setattr(tokenizing, "_encode", wait)
    try:
        yield gate, pieces, begun
    finally:
        gate.release(1000)


async def test_inputs_are_split_into_pieces_of_bounded_cost() -> None:
    """In order, none left out; a text that costs more is a piece of its own, and what is not read costs nothing."""
    inputs = ["a" * 10_000, ("b" * 5000, "c" * 1000), "d" * 90_000, "e", "f" * 1_000_000]
    pieces = list(split_inputs(inputs, 65_536))
    assert [one for piece, _ in pieces for one in piece] == inputs
    assert [len(piece) for piece, _ in pieces] == [2, 1, 1, 1]
    assert all(cost <= MAX_PIECE_COST or len(piece) == 1 for piece, cost in pieces)
    assert max(cost for _, cost in pieces) < 65_536 + 100


async def test_a_text_gets_its_turn_after_the_pieces_that_are_in_hand(serve, bert, make_artifact, monkeypatch):
    """Eight requests of a neighbour, each of many pieces, wait before it: it waits for the two threads and one more."""
    async with serve(admin_key="plt_of-the-operator") as running:
        shared: Shared = await settle_in(running, lambda seed: make_artifact(bert, seed=seed))
        with gated(monkeypatch) as (gate, pieces, _):
            flood = [shared.predict("a", [LONG] * 100) for _ in range(8)]
            turns = running.app.state.preparation.pieces
            await until(lambda: turns.num_waiting == 6)
            victim = shared.predict("b", LONG)
            await until(lambda: turns.num_waiting == 7)
            gate.release(4)
            await until(lambda: 1 in pieces)
            assert pieces.index(1) <= 3
            gate.release(1000)
            assert (await victim).status_code == 200
            for one in flood:
                one.cancel()
            await asyncio.gather(*flood, return_exceptions=True)


async def test_known_words_need_no_thread(running, bert, make_artifact, monkeypatch):
    """Of many texts only those wait for a turn that have words which nobody has sent before; all keep their places."""
    await running.upload(make_artifact(bert, name="demo"))
    known, unknown = ["a good film", "bad", "the plot was dull"] * 8, "a very good cat"
    before = (await running.predict("demo", known)).json()["predictions"]
    with gated(monkeypatch) as (gate, pieces, _):
        assert (await running.predict("demo", known)).json()["predictions"] == before
        assert pieces == []
        gate.release()
        found = (await running.predict("demo", [*known[:11], unknown, *known[11:]])).json()["predictions"]
        assert pieces == [1]
    assert list(found.pop(11)["scores"].values()) == pytest.approx(await running.scores("demo", unknown), abs=1e-5)
    assert [one["label"] for one in found] == [one["label"] for one in before]


async def test_pieces_of_a_caller_who_left_are_never_begun(running, bert, make_artifact, monkeypatch):
    """Two are in the threads when forty callers leave; no other is read, and nothing of theirs stays in progress."""
    await running.upload(make_artifact(bert, name="demo"))
    preparation = running.app.state.preparation
    with gated(monkeypatch) as (gate, pieces, begun):
        calls = [asyncio.ensure_future(running.predict("demo", LONG)) for _ in range(40)]
        await until(lambda: preparation.pieces.num_waiting == 38 and len(begun) == 2)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert preparation.pieces.num_waiting == 0
        gate.release(1000)
        assert (await running.predict("demo", LONG)).status_code == 200
    assert len(pieces) == 3
    assert (preparation.body_bytes.total, preparation.inputs.total) == (0, 0)


async def test_the_text_of_many_tasks_is_not_read_for_a_caller_who_left(running, bert, make_artifact, monkeypatch):
    """Its tasks share the readings, one for each length; all that have not begun end with the request."""
    for length in (16, 32, 64):
        assert (await running.upload(make_artifact(bert, max_length=length), f"task-{length}")).status_code == 201
    preparation = running.app.state.preparation
    with gated(monkeypatch) as (gate, pieces, begun):
        call = asyncio.ensure_future(running.predict_tasks("task-16", "task-32", "task-64", text="zebra " * 400))
        await until(lambda: preparation.pieces.num_waiting == 1 and len(begun) == 2)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert preparation.pieces.num_waiting == 0
        gate.release(2)
        await until(lambda: len(pieces) == 2)
        gate.release(1000)
        assert (await running.predict_tasks("task-16", "task-32", text="lion")).status_code == 200
    assert len(pieces) == 4
    assert preparation.inputs.total == 0
