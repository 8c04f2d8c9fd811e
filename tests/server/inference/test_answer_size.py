"""Bounds of the size of answers, over a real app."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from itertools import product
from typing import Any

import pytest
import pytest_asyncio
from peltier_adapters.batch.row import Row
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.windows import WindowedText
from peltier_client.protocol.predict import Parameters, PredictResponse
from peltier_server.auth.keyring import LOCAL
from peltier_server.context import RequestContext
from peltier_server.inference import prediction, predictor, tokenizing
from peltier_server.inference.prediction import prediction_json

from tests.server.conftest import IN_ONE_LOOP, Running, Serve, until
from tests.server.test_fairness import OPERATOR, settle_in

pytestmark = IN_ONE_LOOP
TEXT = "a good film"
# Each of them takes more bytes in JSON than it has characters.
LABELS = [f'{number:03d} "\\" é \U0001f600' for number in range(300)]
MANY = len(LABELS)
TAGS = ("O", "B-person")
WRITTEN = "the answer has more than 65536 bytes, the most that max_answer_bytes of this server allows"
# In rows of three words: two windows, four windows, and very many.
TWO, FOUR, VERY_MANY = (" ".join(["good"] * count) for count in (6, 12, 13_000))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def labelled(open_app: Serve, bert: Backbone, make_artifact: Callable[..., bytes]) -> AsyncIterator[Running]:
    """The task `many` has 300 labels, `any` as many that may apply together, `few` two and gates; 64 KiB an answer."""
    artifacts = {
        "many": make_artifact(bert, "bitfit", labels=LABELS),
        "any": make_artifact(bert, "bitfit", labels=LABELS, task_type="multilabel"),
        "few": make_artifact(bert, "unipelt-apl", overrides={"sites": "attention,ffn", "targets": "all-linear"}),
        "value": make_artifact(bert, "bitfit", labels=["value"], task_type="regression"),
    }
    async with open_app(max_answer_bytes=64 * 1024) as running:
        for name, data in artifacts.items():
            assert (await running.upload(data, name)).status_code == 201
        yield running


async def test_an_answer_is_written_as_the_wire_reads_it(labelled: Running) -> None:
    answering = labelled.service.predictor
    for task, top_k, raw, count in product(("many", "any", "few", "value"), (None, 1, MANY), (False, True), (1, 3)):
        context = RequestContext("1", known_caller=LOCAL)
        parameters = Parameters(top_k=top_k, raw_scores=raw, return_gates=raw)
        found = await answering.predict(answering.resolve(context, task), [TEXT] * count, parameters)
        whole = await prediction_json(labelled.app.state.preparation, context, found)
        assert (
            PredictResponse.model_validate_json(whole).model_dump_json(by_alias=True).encode() == whole == found.json()
        )


async def test_of_many_labels_the_best_are_answered(labelled: Running) -> None:
    """256 of 300 where the caller gives no `top_k`, in the manifest's order; all where it asks for them."""
    every = (await labelled.predict("many", TEXT, top_k=MANY)).json()["predictions"][0]
    best = (await labelled.predict("many", TEXT)).json()["predictions"][0]
    assert list(every["scores"]) == LABELS
    ranked = sorted(every["scores"], key=every["scores"].__getitem__, reverse=True)
    assert list(best["scores"]) == sorted(ranked[:256], key=LABELS.index)
    assert (best["label"], best["score"]) == (every["label"], every["score"])
    assert len((await labelled.predict("few", TEXT)).json()["predictions"][0]["scores"]) == 2


async def test_every_label_that_applies_is_answered(labelled: Running) -> None:
    """The best scores alone, but all of the labels: an answer without some would be wrong."""
    found = (await labelled.predict("any", TEXT, top_k=MANY)).json()["predictions"][0]
    brief = (await labelled.predict("any", TEXT, top_k=1)).json()["predictions"][0]
    assert brief["labels"] == found["labels"]
    assert len(brief["scores"]) == 1


async def test_an_answer_that_may_be_too_large_is_refused(labelled: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any text is tokenised, in one sentence with the numbers and what to do, which helps."""
    with monkeypatch.context() as patch:
        patch.setattr(predictor, "encode_inputs", None)
        for task, asked in product(("many", "any"), ({}, {"top_k": MANY}, {"return_gates": True})):
            answer = await labelled.predict(task, [TEXT] * 40, **asked)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (422, "invalid_input")
            begin = f"the answer to 40 inputs with {asked.get('top_k', 256)} scores each may have "
            assert error["message"].startswith(begin)
            assert error["message"].endswith(
                " bytes, and 65536 of at most 65536 are left for it: "
                "send fewer inputs in a request, or set a smaller top_k"
            )
    assert (await labelled.predict("many", [TEXT] * 40, top_k=5)).status_code == 200


async def test_labels_count_as_often_as_they_apply(labelled: Running) -> None:
    """Not as if all applied to every input: as many inputs are answered as fit, and more are refused."""
    (found,) = (await labelled.predict("any", TEXT, top_k=1)).json()["predictions"]
    count = 64 * 1024 // (len(json.dumps(found["labels"], ensure_ascii=False).encode()) + 300)
    assert count > 64 * 1024 // (len(json.dumps(LABELS, ensure_ascii=False).encode()) + 300)
    assert (await labelled.predict("any", [TEXT] * count, top_k=1)).status_code == 200
    answer = await labelled.predict("any", [TEXT] * 100, top_k=1)
    assert (answer.status_code, answer.json()["error"]["message"]) == (422, WRITTEN)


async def test_only_what_helps_is_advised(serve: Serve, bert: Backbone, make_artifact: Callable[..., bytes]) -> None:
    """Neither fewer inputs than one, nor a smaller top_k where one score is too much."""
    async with serve(max_answer_bytes=12 * 1024) as running:
        assert (await running.upload(make_artifact(bert, "bitfit", labels=LABELS), "many")).status_code == 201
        asked = {(1, MANY): ": set a smaller top_k", (100, 1): ": send fewer inputs in a request"}
        for (count, top_k), advice in asked.items():
            answer = await running.predict("many", [TEXT] * count, top_k=top_k)
            assert answer.status_code == 422
            assert answer.json()["error"]["message"].endswith(f" are left for it{advice}")


async def test_a_large_answer_is_written_after_the_pieces_that_are_in_hand(serve, bert, make_artifact, monkeypatch):
    """Eight of a neighbour, each of many pieces, wait before it: it waits for the two threads and a few pieces more."""
    gate, complete = threading.Semaphore(0), list[bool]()
    write = prediction._write_some

    def write_gated(*arguments: Any, pause: bool = False) -> bool:
        if not pause:  # the event loop, which writes the beginning
            return write(*arguments)
        gate.acquire()
        goes_on = write(*arguments, pause=pause)
        complete.append(not goes_on)
        return goes_on

    monkeypatch.setattr(prediction, "_write_some", write_gated)
    async with serve(admin_key=OPERATOR) as running:
        shared = await settle_in(running, lambda seed: make_artifact(bert, "bitfit", labels=LABELS, seed=seed))
        flood = [shared.predict("a", [TEXT] * 160, top_k=MANY) for _ in range(8)]
        turns = running.app.state.preparation.pieces
        await until(lambda: turns.num_waiting == 6)
        victim = shared.predict("b", [TEXT] * 7, top_k=MANY)
        await until(lambda: turns.num_waiting == 7)
        gate.release(8)
        await until(lambda: True in complete)
        assert complete.index(True) <= 6
        gate.release(1000)
        assert {answer.status_code for answer in await asyncio.gather(victim, *flood)} == {200}


async def test_gates_count(labelled: Running) -> None:
    inputs = [TEXT] * 150
    assert (await labelled.predict("few", inputs)).status_code == 200
    assert (await labelled.predict("few", inputs, return_gates=True)).status_code == 422


async def test_the_parts_of_a_mixed_request_share_one_answer(labelled: Running) -> None:
    item = {"task": "many", "input": TEXT, "parameters": {"top_k": MANY}}
    alone = await labelled.predict_mixed(item)
    answer = await labelled.predict_mixed(*[item] * 10, {"task": "few", "input": TEXT})
    assert (alone.status_code, answer.status_code) == (200, 200)
    assert len(answer.content) <= 64 * 1024
    results = answer.json()["results"]
    answered = ["predictions" in result for result in results]
    assert answered == [*sorted(answered[:-1], reverse=True), True]
    assert 0 < sum(answered) < 10
    message = results[-2]["error"]["message"]
    assert message.startswith("the answer to 1 inputs with 300 scores each may have ")


async def test_texts_count(serve: Serve, t5: Backbone, t5_directory: str, make_artifact: Callable[..., bytes]) -> None:
    """By the most that their tokens can be, on every route and with stops, where each prompt is written by itself."""
    async with serve(backbone=t5_directory, max_answer_bytes=8 * 1024, max_new_tokens=12) as running:
        assert (await running.upload(make_artifact(t5, "lora", task_type="text2text"), "text")).status_code == 201
        assert (await running.predict("text", [TEXT] * 8, max_new_tokens=2)).status_code == 200
        refused = await running.predict("text", [TEXT] * 30, max_new_tokens=12)
        assert refused.status_code == 422
        assert "inputs with 12 tokens each" in refused.json()["error"]["message"]
        assert refused.json()["error"]["message"].endswith("or set a smaller max_new_tokens")
        for stops in ({}, {"stop": ["zzz"]}):
            body = {"model": "text", "prompt": [TEXT] * 30, "max_tokens": 12, **stops}
            answer = await running.client.post("/v1/completions", json=body)
            assert answer.status_code == 400
            assert "inputs with 12 tokens each" in answer.json()["error"]["message"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tagging(open_app: Serve, bert: Backbone, make_artifact: Callable[..., bytes]) -> AsyncIterator[Running]:
    """A server of at most four windows, with two tasks of five tokens."""
    data = make_artifact(bert, "lora", task_type="token-classification", labels=TAGS, max_length=5)
    async with open_app(max_windows=4) as running:
        for name in ("one", "two"):
            assert (await running.upload(data, name)).status_code == 201
        yield running


def _refusal(count: int) -> str:
    return (
        f"the long texts of the request make {count} windows or more; at most 4 are allowed: send fewer or shorter "
        "texts, or set a smaller stride"
    )


async def test_windows_of_all_inputs_count(tagging: Running) -> None:
    assert (await tagging.predict("one", [TWO, TWO, *["bad"] * 9], stride=0)).status_code == 200
    assert (await tagging.predict("one", [FOUR, "bad"], stride=0)).status_code == 200
    assert (await tagging.predict("one", [VERY_MANY] * 3)).status_code == 200
    answer = await tagging.predict("one", [TWO, "bad", FOUR, "bad"], stride=0)
    assert (answer.status_code, answer.json()["error"]["message"]) == (422, _refusal(6))


async def test_too_many_windows_are_not_made(tagging: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of 65,536 characters is refused when its tokens are known; the texts behind it are not read."""
    read, encode = list[int](), tokenizing._encode_one

    def record(*args: Any) -> Any:
        read.append(len(args[-1]))
        return encode(*args)

    monkeypatch.setattr(tokenizing, "_encode_one", record)
    monkeypatch.setattr(WindowedText, "rows", None)
    answer = await tagging.predict("one", [VERY_MANY, *["bad " * 20] * 8], stride=0)
    assert (answer.status_code, answer.json()["error"]["message"]) == (422, _refusal(4334))
    assert read == [len(VERY_MANY)]


async def test_the_parts_of_a_mixed_request_share_them(tagging: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an input for each task or one for all; no row of a refused part is made, and the others are answered."""
    rows = list[Row]()
    monkeypatch.setattr(predictor, "Row", lambda *args, **options: rows.append(Row(*args, **options)) or rows[-1])
    items = [{"task": task, "input": TWO, "parameters": {"stride": 0}} for task in ("one", "two", "one")]
    for answer in (
        await tagging.predict_mixed(*items),
        await tagging.predict_tasks("one", "two", "one@1", text=TWO, stride=0),
    ):
        rows.clear()
        results = answer.json()["results"]
        assert ["error" in one for one in results] == [False, False, True]
        assert results[2]["error"]["message"] == _refusal(6)
    again = await tagging.predict_tasks("one", "two", "one@1", text=TWO, stride=0)
    assert (again.status_code, len(rows)) == (200, 4)
