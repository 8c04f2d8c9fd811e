"""Failures on the path of a request, before and after the runner: which requests fail, and which do not."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from peltier_adapters.artifact.artifact import Artifact
from peltier_backbone.backbone import Backbone
from peltier_server.inference import response, tokenizing
from peltier_server.inference.answer_size import AnswerForm
from peltier_server.inference.prediction import OnePrediction
from peltier_server.residency import loader
from peltier_store.blobs.blobs import BlobError, Blobs

from tests.server.conftest import Serve, hold, until

TEXT = "a good film"


async def fail(release: asyncio.Event) -> None:
    raise BlobError("the store is away")


async def hang(release: asyncio.Event) -> None:
    await release.wait()


@pytest.mark.parametrize(
    ("fault", "timeout_ms", "status", "code"),
    [(fail, 60_000, 503, "unavailable"), (hang, 2000, 504, "deadline_passed")],
    ids=["fails", "hangs"],
)
async def test_a_load_that_goes_wrong_holds_up_nobody(
    serve: Serve,
    bert: Backbone,
    make_artifact: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[asyncio.Event], object],
    timeout_ms: int,
    status: int,
    code: str,
) -> None:
    """Whoever asks for that adapter is told so, by its deadline at the latest; another one loads and answers in the
    meantime as ever; and once the store is well again so does the first, which is not in quarantine."""
    async with serve() as running:
        for seed, name in enumerate("ab"):
            await running.upload(make_artifact(bert, name=name, seed=seed))
        digest = running.service.catalog.find("default", "a").newest.digest
        scores = {name: await running.scores(name, TEXT) for name in "ab"}
    load, release = Blobs.load, asyncio.Event()

    async def faulty(self: Blobs, asked: str, parse: Callable[[bytes], Artifact]) -> Artifact:
        if asked == digest and not release.is_set():
            await fault(release)
        return await load(self, asked, parse)

    monkeypatch.setattr(Blobs, "load", faulty)
    async with serve() as running:
        bad = [asyncio.ensure_future(running.predict("a", TEXT, timeout_ms=timeout_ms)) for _ in range(4)]
        assert await running.scores("b", TEXT) == pytest.approx(scores["b"], abs=1e-5)
        answers = await asyncio.gather(*bad)
        assert {(one.status_code, one.json()["error"]["code"]) for one in answers} == {(status, code)}
        release.set()
        assert await running.scores("a", TEXT) == pytest.approx(scores["a"], abs=1e-5)


async def test_a_load_begins_while_the_text_is_read(serve, bert, make_artifact, monkeypatch):
    """A cold adapter is on its way before a long text is in tokens; while both take their time in threads, the event
    loop answers and the runner computes for others."""
    async with serve() as running:
        for name in ("cold", "warm"):
            await running.upload(make_artifact(bert, name=name))
        digest = running.service.catalog.find("default", "cold").newest.digest
    async with serve() as running:
        assert await running.scores("warm", TEXT)
        release = threading.Event()
        try:
            encoding = hold_up(monkeypatch, tokenizing, "encode_input", lambda text: len(text) > 4096, release)
            parsing = hold_up(monkeypatch, loader, "load_stored", lambda asked: asked == digest, release)
            cold = asyncio.ensure_future(running.predict("cold", "good " * 1000))
            await until(lambda: encoding.is_set() and parsing.is_set())
            assert (await running.client.get("/ready")).status_code == 200
            assert await running.scores("warm", TEXT)
            assert not cold.done()
        finally:
            release.set()
        answer = await cold
        assert (answer.status_code, answer.headers["x-adapter-tier"]) == (200, "store")


def hold_up(patch, module, name, which, release):
    """Makes a function wait for `release` when one of its arguments is a string and such a one; returns what is set
    once it waits. It fails where nobody can release it."""
    act, waits = getattr(module, name), threading.Event()

    def slow(*given: Any, **named: Any) -> Any:
        if any(which(one) for one in (*given, *named.values()) if isinstance(one, str)):
            waits.set()
            assert release.wait(60), f"{name} has kept whoever would have released it"
        return act(*given, **named)

    patch.setattr(module, name, slow)
    return waits


async def test_an_answer_that_cannot_be_read_takes_down_no_other(running, bert, make_artifact, monkeypatch):
    """Its caller reads that the server failed, also as one part of a mixed request; who was in the same batch gets the
    right answer; nothing stays leased, and the version is not in quarantine for it."""
    for seed, name in enumerate("ab"):
        await running.upload(make_artifact(bert, name=name, labels=[f"{name}0", f"{name}1"], seed=seed))
    scores = {name: await running.scores(name, TEXT) for name in "ab"}
    with monkeypatch.context() as patch:
        fail_to_read(patch, "a0")
        for _ in range(3):
            async with hold(running):
                tasks = ({"task": name, "input": TEXT} for name in "ab")
                asked = [running.predict("a", TEXT), running.predict_mixed(*tasks), running.predict("b", TEXT)]
                answers = asyncio.gather(*asked)
                await until(lambda: len(running.service.batcher._rows) == 4)
            alone, mixed, other = await answers
            assert (alone.status_code, mixed.status_code, other.status_code) == (500, 200, 200)
            parts = mixed.json()["results"]
            assert [body["error"]["code"] for body in (alone.json(), parts[0])] == ["internal_error"] * 2
            for body in (parts[1], other.json()):
                assert list(body["predictions"][0]["scores"].values()) == pytest.approx(scores["b"], abs=1e-5)
                assert body["batch"]["rows"] == 4
    assert await running.scores("a", TEXT) == pytest.approx(scores["a"], abs=1e-5)
    assert all(not entry.leases for entry in running.service.slots._entries.values())


def fail_to_read(patch: pytest.MonkeyPatch, label: str) -> None:
    """No answer of a task with this label can be read."""
    read = response.read_answers

    def faulty(backbone: Backbone, form: AnswerForm, *given: Any) -> list[OnePrediction]:
        if label in form.task.labels:
            raise ArithmeticError("no such answer")
        return read(backbone, form, *given)

    patch.setattr(response, "read_answers", faulty)
