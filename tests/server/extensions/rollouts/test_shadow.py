"""Candidates that shadow: computed beside the answers, and never answered."""

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from peltier_adapters.batch.row import Row
from peltier_client.errors import InferenceFailed, InvalidInput, QueueFull
from peltier_server.extensions.rollouts import recorder
from peltier_server.extensions.rollouts.recorder import match
from peltier_server.inference.prediction import Prediction
from peltier_server.queue.ticket import Terms
from peltier_store.blobs.errors import BlobNotFound

from tests.server.conftest import hold, until
from tests.server.extensions.rollouts.conftest import TEXTS, Shop


async def test_the_candidate_is_never_answered(shop: Shop) -> None:
    """It answers beside the incumbent, and both get the feedback of the row."""
    assert (await shop.guard(shadow=True)).json()["versions"] == {"1": 1.0}
    found = {}
    for version in (1, 2):
        own = await shop.ask(f"own{version}", TEXTS, f"a@{version}")
        found[version] = [one["label"] for one in own["predictions"]]
    for number, text in enumerate(TEXTS):
        body = await shop.ask(f"r{number}", text)
        assert (body["adapter"]["version"], body["predictions"][0]["label"]) == (1, found[1][number])
        told = await shop.tell(f"r{number}", label="positive")
        assert (told.json()["version"], told.json()["right"]) == (1, found[1][number] == "positive")
    counts = (await shop.state())["counts"]
    assert counts["incumbent"] == {
        "answers": 10, "failed": 0, "judged": 10, "right": found[1].count("positive")
    }  # fmt: skip
    assert counts["candidate"] == {
        "answers": 10, "failed": 0, "judged": 10, "right": found[2].count("positive")
    }  # fmt: skip
    equal = sum(one == other for one, other in zip(found[1], found[2], strict=True))
    assert counts["disagreement"] == {"wins": equal, "losses": 10 - equal}
    assert sum(counts["accuracy"].values()) == sum(counts["errors"].values()) == 10


async def test_whether_the_incumbent_was_right_is_not_enough(shop: Shop) -> None:
    """Because the candidate's answer may have been right where that was wrong."""
    await shop.guard(shadow=True)
    await shop.ask("r")
    refused = await shop.tell("r", right=False)
    assert refused.status_code == 422
    assert refused.json()["error"]["message"].startswith(
        "the candidate shadows, so this feedback needs the right label"
    )


async def test_a_busy_server_drops_shadows(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers come nevertheless, and take feedback, which counts for the incumbent alone."""
    monkeypatch.setattr(recorder, "MAX_SHADOWS", 0)
    await shop.guard(shadow=True)
    label = (await shop.ask("r"))["predictions"][0]["label"]
    assert (await shop.tell("r", label=label)).json()["counted"] is True
    counts = (await shop.state())["counts"]
    assert counts == {
        "incumbent": {"answers": 1, "failed": 0, "judged": 1, "right": 1}, "candidate": {"dropped": 1}
    }  # fmt: skip


async def test_shadows_wait_for_no_one_and_no_one_for_them(shop: Shop) -> None:
    """An answer is there before its shadow is computed; while rows wait in the queue, no shadow begins."""
    await shop.guard(shadow=True)
    service = shop.running.service
    await shop.ask("warm")
    await shop.settled("warm")
    seen: list[str] = []
    begun, released = threading.Event(), threading.Event()
    compute = service.predictor.repeat

    async def late(*given: Any) -> Any:
        begun.set()
        await until(released.is_set)
        seen.append("shadow")
        return await compute(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service.predictor, "repeat", late)
        await shop.ask("r")
        seen.append("answer")
        await until(begun.is_set)
        released.set()
        await shop.settled("r")
    assert seen == ["answer", "shadow"]
    async with hold(shop.running):
        waiting = asyncio.create_task(shop.ask("waits", "a gem", "a@3"))
        await until(lambda: service.batcher.queued_rows)
        assert shop.rollouts.recorder.is_busy
    await waiting


async def test_rows_that_nobody_waits_for_drop_no_shadows(own_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as those of a batch in a file, which may wait for hours."""
    batcher = own_shop.running.service.batcher
    monkeypatch.setattr(batcher, "start_background", lambda: None)
    await own_shop.guard(shadow=True)
    row = Row(own_shop.running.service.backbone.tokenizer.encode("a", max_tokens=3))
    offline = asyncio.create_task(batcher.compute([row], Terms(background=True)))
    await until(lambda: batcher.queued_rows)
    await own_shop.ask("r")
    await own_shop.settled("r")
    assert (await own_shop.state())["counts"]["errors"] == {"ties": 1}
    offline.cancel()
    await asyncio.gather(offline, return_exceptions=True)


async def test_a_candidate_that_fails_is_rolled_back(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any feedback; nobody has seen an error, and the metrics count the decision."""
    service, before = shop.running.service, await num_rolled_back(shop)

    async def fail(*_: Any) -> Any:
        raise InferenceFailed("the candidate fails")

    monkeypatch.setattr(service.predictor, "repeat", fail)
    await shop.guard(shadow=True)
    for number in range(100):
        await shop.ask(f"r{number}")
        await shop.settled(f"r{number}")
        if (await shop.state())["state"] != "running":
            break
    state = await shop.state()
    assert state["state"] == "rolled_back"
    assert state["reason"].startswith("the candidate fails more often: it was worse in ")
    assert await num_rolled_back(shop) == before + 1


async def test_a_candidate_without_its_bytes_fails(shop, monkeypatch, caplog):
    """No other version answers in its place."""
    service, blobs = shop.running.service, shop.running.service.store.blobs

    async def fail(*_: Any) -> Any:
        raise BlobNotFound("the blob is gone")

    await shop.ask("own", task="a@2")
    await shop.guard(shadow=True)
    await shop.ask("warm")
    await shop.settled("warm")
    candidate = service.catalog.find(shop.running.tenant, "a").entries[2]
    service.slots.retire(candidate.owned)
    monkeypatch.setattr(blobs, "load", fail)
    await shop.ask("r")
    await shop.settled("r")
    assert (await shop.state())["counts"]["candidate"]["failed"] == 1
    assert "adapter 'a' version 2 cannot be loaded: the blob is gone" in caplog.text


async def test_failures_of_the_incumbent_count_for_the_candidate(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that two versions that fail equally often on different rows stay equal, however many rows there are."""
    service = shop.running.service
    predict, shadow = service.predictor._answer_in_time, service.predictor.repeat

    def failing(on: str, compute: Callable[..., Awaitable[Prediction]]) -> Any:
        async def answer(*given: Any) -> Prediction:
            if given[-1].inputs[0] == on:
                raise InferenceFailed("it fails")
            return await compute(*given)

        return answer

    monkeypatch.setattr(service.predictor, "_answer_in_time", failing("for the incumbent", predict))
    monkeypatch.setattr(service.predictor, "repeat", failing("for the candidate", shadow))
    await shop.guard(shadow=True)
    for text in ("for the candidate", "good", "for the incumbent", "good") * 15:
        await shop.running.predict("a", text)
        await until(lambda: not shop.rollouts.recorder.computing)
    state = await shop.state()
    assert state["state"] == "running"
    assert state["counts"]["errors"] == {"losses": 15, "ties": 30, "wins": 15}
    assert state["counts"]["incumbent"] == {"answers": 60, "failed": 15}


@pytest.mark.parametrize("refusal", [InvalidInput("the input has no text"), QueueFull("9 tokens wait")])
async def test_refusals_say_nothing_about_a_version(shop, monkeypatch, refusal):
    """Neither of an input nor by a full queue: nothing is counted or shadowed."""

    async def refuse(*_: Any) -> Any:
        raise refusal

    await shop.guard(shadow=True)
    monkeypatch.setattr(shop.running.service.predictor, "_answer_in_time", refuse)
    assert (await shop.running.predict("a", "good")).status_code == refusal.status
    assert not shop.rollouts.recorder.computing
    assert (await shop.state())["counts"] == {}


async def num_rolled_back(shop: Shop) -> float:
    """The guarded changes that were rolled back so far."""
    page = (await shop.running.client.get("/metrics")).text
    return sum(map(float, re.findall(r'^peltier_rollouts_total{result="rolled_back"} (.*)$', page, re.MULTILINE)))


def test_each_request_is_compared_once_under_a_share():
    """With the newest one of the other version that waits, the candidate's first."""
    waiting: list[tuple[bool, bool]] = []
    assert [match(waiting, True, failed) for failed in (True, False)] == [None, None]
    assert [match(waiting, False, failed) for failed in (True, False, True)] == [(False, True), (True, False), None]
    assert match(waiting, True, False) == (False, True)
