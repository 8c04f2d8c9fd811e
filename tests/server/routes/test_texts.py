"""Generated texts over HTTP: whole, in pieces, refused."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact, to_bytes
from peltier_adapters.generation import Generator
from peltier_adapters.ops.choice import choose_backend
from peltier_backbone.backbone import Backbone
from peltier_client.protocol.predict import Parameters
from peltier_server.auth.keyring import ALL_SCOPES, Caller
from peltier_server.context import RequestContext
from peltier_server.runner.decoder import DecodeGroup, DecodeJob

from tests.server.conftest import ADMIN, Listen, Listening, Running, Serve, Tenant, take_steps, until

MakeArtifact = Callable[..., bytes]
TEXTS = ("a good film", "bad", "the plot was not very good , and the actor is dull")


def longer(data: bytes, backbone: Backbone, max_new_tokens: int) -> bytes:
    return with_decoding(data, backbone, max_new_tokens=max_new_tokens)


def with_decoding(data: bytes, backbone: Backbone, **changes: float) -> bytes:
    artifact = read_artifact(data, backbone)
    decoding = artifact.manifest.task.decoding.model_copy(update=changes)
    task = artifact.manifest.task.model_copy(update={"decoding": decoding})
    return to_bytes(artifact.manifest.model_copy(update={"task": task}), artifact.tensors)


@pytest.fixture(scope="module")
def artifacts(t5: Backbone, make_artifact: MakeArtifact) -> list[bytes]:
    long = make_artifact(t5, "bitfit", task_type="text2text", name="long", seed=3)
    return [
        make_artifact(t5, "compacter", task_type="text2text", name="say"),
        make_artifact(t5, "lora", task_type="text2text", name="pairs", inputs="pair", seed=1),
        make_artifact(t5, "lora", task_type="text2text", name="triples", inputs="triple", seed=1),
        make_artifact(t5, "unipelt-apl", name="film"),
        make_artifact(t5, "bitfit", name="stars", task_type="regression", labels=["1.0", "2.5", "4.0"]),
        make_artifact(t5, "prefix", name="written", answer="generate"),
        longer(long, t5, 300),
    ]


@pytest.fixture(scope="module")
def world(listen: Listen, t5_directory: Path) -> Iterator[Listening]:
    with listen(backbone=str(t5_directory), admin_key=ADMIN) as started:
        yield started


@pytest.fixture(scope="module")
def tenant(world: Listening, artifacts: list[bytes]) -> Tenant:
    """It has one adapter of each kind of task, which no test changes."""
    tenant = world.add_tenant()
    for data in artifacts:
        world.upload(data, tenant.key)
    return tenant


@pytest.fixture
async def loaded(world: Listening, tenant: Tenant) -> AsyncIterator[Running]:
    async with world.enter(tenant) as entered:
        yield entered


@pytest.fixture
def serve_t5(serve: Serve, t5_directory: Path) -> Serve:
    return lambda **settings: serve(backbone=str(t5_directory), **settings)


async def text_of(running: Running, task: str, text: object, **parameters: object) -> str:
    answer = await running.predict(task, text, **parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"][0]["text"]


def live_rows(running: Running) -> int:
    return running.service._supervisor._worker.decode_rows


def events_of(body: str) -> list[dict[str, object] | str]:
    data = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in data]


async def test_the_body_is_the_contracts(loaded: Running) -> None:
    """A text has its score, its reason to end and its tokens; a generated label says which it is."""
    body = (await loaded.predict("say", list(TEXTS))).json()
    assert [list(one) for one in body["predictions"]] == [["text", "score", "finish_reason"]] * 3
    assert {one["finish_reason"] for one in body["predictions"]} <= {"stop", "length"}
    assert all(0 < one["score"] <= 1 for one in body["predictions"])
    assert body["usage"]["completion_tokens"] <= 3 * 12
    assert (await loaded.predict("pairs", [["a film", "a plot"]])).json()["predictions"][0]["text"]
    triple = ["a film", "a plot", "an actor"]
    assert (await loaded.predict("triples", [triple])).json()["predictions"][0]["text"]
    assert await text_of(loaded, "triples", [triple]) != await text_of(loaded, "triples", [[*triple[:2], "bad"]])


async def test_the_headers_are_the_contracts(loaded: Running) -> None:
    for stream in (False, True):
        answer = await loaded.client.post("/v1/tasks/say/predict", json={"inputs": "bad", "stream": stream})
        assert answer.headers["x-adapter-version"] == "1"
        assert answer.headers["x-adapter-digest"].startswith("sha256:")
        assert answer.headers["x-adapter-tier"] == "device"
        assert float(answer.headers["x-queue-time-ms"]) >= 0
        assert float(answer.headers["x-compute-time-ms"]) > 0


async def test_closed_tasks_are_scored(loaded: Running) -> None:
    """Probabilities among the labels, and the number of the likeliest target."""
    body = (await loaded.predict("film", "a good film", return_gates=True)).json()
    prediction = body["predictions"][0]
    assert list(prediction["scores"]) == ["negative", "positive"]
    assert sum(prediction["scores"].values()) == pytest.approx(1)
    assert prediction["gates"]
    assert "completion_tokens" not in body["usage"]
    assert (await loaded.predict("stars", "bad")).json()["predictions"][0]["value"] in (1.0, 2.5, 4.0)


async def test_closed_tasks_can_be_generated(loaded: Running) -> None:
    """By the artifact's word or the caller's; a text that is no label has none."""
    for task, parameters in (("written", {}), ("film", {"answer": "generate"})):
        prediction = (await loaded.predict(task, "bad", **parameters)).json()["predictions"][0]
        assert list(prediction) == ["text", "score", "finish_reason"]
    assert "scores" in (await loaded.predict("written", "bad", answer="score")).json()["predictions"][0]


async def test_a_generated_label_is_named(loaded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = loaded.service.backbone.tokenizer
    for task, said, key, value in (("written", " positive", "label", "positive"), ("stars", "2.5", "value", 2.5)):
        monkeypatch.setattr(tokenizer, "decode", lambda ids, said=said: said)
        prediction = (await loaded.predict(task, "bad", answer="generate")).json()["predictions"][0]
        assert (prediction[key], prediction["text"]) == (value, said)


async def test_parameters(loaded: Running) -> None:
    whole = (await loaded.predict("long", "bad", max_new_tokens=20)).json()
    short = (await loaded.predict("long", "bad", max_new_tokens=5)).json()
    assert whole["predictions"][0]["text"].startswith(short["predictions"][0]["text"])
    assert short["usage"]["completion_tokens"] == 5
    assert short["predictions"][0]["finish_reason"] == "length"
    raw = (await loaded.predict("long", "bad", max_new_tokens=5, raw_scores=True)).json()["predictions"][0]["score"]
    beams = await loaded.predict("long", "bad", max_new_tokens=5, num_beams=4, raw_scores=True)
    assert beams.json()["predictions"][0]["score"] >= raw - 1e-4
    assert beams.json()["batch"]["rows"] == 4
    drawn = [await text_of(loaded, "long", "bad", temperature=1.5, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert await text_of(loaded, "long", "bad", temperature=1.5) != await text_of(
        loaded, "long", "bad", temperature=1.5
    )


@pytest.mark.parametrize(
    ("task", "body", "sentence"),
    [
        ("say", {"max_new_tokens": 13}, "max_new_tokens is 13: this task allows at most 12"),
        ("say", {"max_new_tokens": 0}, "parameters.max_new_tokens is 0"),
        ("say", {"num_beams": 17}, "parameters.num_beams is 17"),
        ("say", {"temperature": 2.5}, "parameters.temperature is 2.5"),
        ("say", {"top_p": 0}, "parameters.top_p is 0"),
        ("say", {"seed": 2**63}, "parameters.seed is"),
        ("say", {"answer": "guess"}, "parameters.answer is 'guess'"),
        ("say", {"num_beams": 2, "temperature": 1}, "num_beams 2 and temperature 1 exclude each other"),
        ("say", {"top_k": 1}, "top_k is for scored labels"),
        ("film", {"num_beams": 2}, "num_beams is for generated texts"),
        ("say", {"truncate": False, "inputs": "good " * 80}, "tokens; this task takes at most 64"),
        ("say", {"inputs": " "}, "an input text is empty"),
        ("pairs", {"inputs": "a"}, "the input is one text; this task takes a pair"),
        (
            "pairs",
            {"inputs": [["a", "b", "c"]]},
            "the input is three texts [text, pair, third]; this task takes a pair",
        ),
        ("pairs", {"inputs": [["a", "b", "c", "d"]]}, "inputs: must be a text, a non-empty list of texts"),
        ("say", {"stream": True, "inputs": ["a", "b"]}, "stream is for one input; this request has 2"),
        ("say", {"stream": True, "num_beams": 2}, "stream and 2 beams exclude each other"),
        ("film", {"stream": True}, "stream is for generated texts"),
        ("say", {"stream": True, "inputs": ""}, "an input text is empty"),
        ("say", {"stream": 1}, "stream is 1"),
    ],
)
async def test_bad_input_gets_one_clear_sentence(loaded, task, body, sentence):
    given = dict(body)
    inputs, stream = given.pop("inputs", "a film"), given.pop("stream", False)
    request = {"inputs": inputs, "stream": stream, "parameters": given}
    answer = await loaded.client.post(f"/v1/tasks/{task}/predict", json=request)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_input")
    assert sentence in answer.json()["error"]["message"]


async def test_artifacts_of_another_family_are_refused(loaded, serve, t5, bert, make_artifact, tmp_path):
    refused = await loaded.upload(make_artifact(bert, "lora"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "artifact_refused")
    assert any("bert" in reason and "t5" in reason for reason in refused.json()["error"]["details"])
    async with serve(store=tmp_path / "other") as running:
        refused = await running.upload(make_artifact(t5, "lora", task_type="text2text"))
        assert refused.status_code == 422
        assert any("bert" in reason and "t5" in reason for reason in refused.json()["error"]["details"])
        await running.upload(make_artifact(bert, "lora", name="head"))
        answer = await running.predict("head", "a film", max_new_tokens=3)
        assert answer.status_code == 422
        assert "max_new_tokens is for tasks on T5" in answer.json()["error"]["message"]


async def test_info_and_metrics_tell_of_decoding(loaded: Running) -> None:
    await loaded.predict("say", "a good film")
    info = (await loaded.client.get("/info")).json()
    assert (info["limits"]["max_decode_rows"], info["limits"]["max_new_tokens"]) == (64, 1024)
    assert (info["backbone"]["family"], info["backbone"]["num_decoder_layers"]) == ("t5", 2)
    assert info["kernels"] == loaded.service.backbone.kernels | {
        "adapters": choose_backend(torch.device("cpu"), torch.float32).name
    }
    rows = loaded.service.metrics.decode_rows
    await until(lambda: rows._value.get() == 0)  # an answer leaves before the step that ended it is counted
    page = (await loaded.client.get("/metrics")).text
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    assert float(values["peltier_generated_tokens_total"]) >= 1
    assert float(values["peltier_decode_step_seconds_count"]) >= 1
    assert float(values["peltier_decode_rows"]) == 0


async def test_a_stream_is_the_text_in_pieces(loaded: Running) -> None:
    """Then the whole prediction, then [DONE]."""
    whole = (await loaded.predict("long", "bad", max_new_tokens=40)).json()
    body = {"inputs": "bad", "stream": True, "parameters": {"max_new_tokens": 40}}
    answer = await loaded.client.post("/v1/tasks/long/predict", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *pieces, last, done = events_of(answer.text)
    assert done == "[DONE]"
    assert last["predictions"] == [{**whole["predictions"][0], "score": last["predictions"][0]["score"]}]
    assert last["usage"] == whole["usage"]
    assert "".join(piece["text"] for piece in pieces) == whole["predictions"][0]["text"]
    assert {piece["index"] for piece in pieces} == {0}
    assert len(pieces) > 10


async def num_truncated(running: Running) -> float:
    page = (await running.client.get("/metrics")).text
    name = f'peltier_truncated_inputs_total{{tenant="{running.tenant}"}} '
    return sum(float(line.removeprefix(name)) for line in page.splitlines() if line.startswith(name))


async def test_texts_say_what_was_truncated(loaded: Running) -> None:
    """Whole, in pieces and scored; the template counts, and so does every text of a pair or of three."""
    long, before = "good " * 80, await num_truncated(loaded)
    for task, inputs in (
        ("say", long), ("pairs", [["bad", long]]), ("triples", [["bad", "bad", long]]), ("film", long), ("stars", long),
    ):  # fmt: skip
        whole = await loaded.predict(task, inputs)
        assert (whole.json()["usage"]["truncated_inputs"], whole.headers["x-truncated-inputs"]) == (1, "1")
    stream = await loaded.client.post("/v1/tasks/say/predict", json={"inputs": long, "stream": True})
    assert stream.headers["x-truncated-inputs"] == "1"
    assert events_of(stream.text)[-2]["usage"]["truncated_inputs"] == 1
    assert await num_truncated(loaded) == before + 6
    short = await loaded.client.post("/v1/tasks/say/predict", json={"inputs": "bad", "stream": True})
    assert "x-truncated-inputs" not in short.headers


async def test_an_error_in_the_middle_of_a_stream_is_an_event(loaded: Running) -> None:
    """The pieces that came before it stay, and nothing follows."""
    body = {"inputs": "bad", "stream": True, "parameters": {"timeout_ms": 60_000}}
    step = DecodeGroup.step

    def end_late(self: DecodeGroup) -> list[DecodeJob]:
        for job in self.jobs:
            if len(job.draft.ids) > 12:
                job.ticket.deadline = 0.0
        return step(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecodeGroup, "step", end_late)
        answer = await loaded.client.post("/v1/tasks/long/predict", json=body)
    assert answer.status_code == 200
    *_, name, data, _ = answer.text.split("\n")[:-1]
    assert (name, json.loads(data.removeprefix("data: "))["error"]["code"]) == ("event: error", "deadline_passed")
    assert events_of(answer.text)[0]["text"]
    await until(lambda: live_rows(loaded) == 0)


async def test_a_deadline_passes_while_a_text_is_written(loaded: Running) -> None:
    """504 comes in time, and the row leaves the decoder."""
    with pytest.MonkeyPatch.context() as patch:
        turns = take_steps(patch)
        answer = await loaded.predict("long", "bad", timeout_ms=300)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_passed")
        turns.release(20)  # fewer than the tokens of a long text
        await until(lambda: live_rows(loaded) == 0)


async def test_a_caller_who_gives_up_frees_the_slots(loaded: Running) -> None:
    """Between two steps, while others are written on, and nothing of the adapter stays leased."""
    with pytest.MonkeyPatch.context() as patch:
        turns = take_steps(patch)
        predictor = loaded.service.predictor
        caller = Caller(loaded.tenant, ALL_SCOPES, loaded.actor)
        target = predictor.resolve(RequestContext("1", known_caller=caller), "long")
        gone = asyncio.ensure_future(loaded.run(predictor.predict(target, ["bad"] * 3, Parameters())))
        await until(lambda: live_rows(loaded) == 3)
        other = asyncio.ensure_future(text_of(loaded, "say", "a good film"))
        await until(lambda: loaded.service.batcher.queued_rows)
        turns.release()
        await until(lambda: live_rows(loaded) == 4)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        turns.release(20)  # fewer than the tokens of a long text
        await until(lambda: live_rows(loaded) <= 1)
        written = await other
    assert written == await text_of(loaded, "say", "a good film")
    await until(lambda: all(not entry.leases for entry in loaded.service.slots._entries.values()))


async def test_a_draining_server_finishes_its_texts(serve_t5: Serve, artifacts: list[bytes]) -> None:
    """Those that are being written and those that wait; newcomers read 503."""
    async with serve_t5() as running:
        await running.upload(artifacts[0])
        batcher = running.service.batcher
        with pytest.MonkeyPatch.context() as patch:
            turns = take_steps(patch)
            texts = [asyncio.ensure_future(text_of(running, "say", text)) for text in TEXTS]
            await until(lambda: live_rows(running) and live_rows(running) + batcher.queued_rows == len(texts))
            running.app.state.lifecycle.drain()
            batcher.close()
            refused = await running.predict("say", "bad")
            turns.release(1000)
            written = await asyncio.gather(*texts)
    assert refused.status_code == 503
    assert all(written)


async def test_one_failing_text_fails_alone(loaded: Running) -> None:
    """424 for the input that breaks every step, and the right text for everyone else."""
    alone = [await text_of(loaded, "say", text) for text in TEXTS]
    bad = "dull dull dull"
    with pytest.MonkeyPatch.context() as patch:
        step = Generator.step
        words = loaded.service.backbone.tokenizer.encode(f"good film: {bad}")

        def failing(self: Generator) -> object:
            if any(draft.row.encoded == words for draft in self.live):
                raise RuntimeError("a kernel met a bad row")
            return step(self)

        patch.setattr(Generator, "step", failing)
        failed, *texts = await asyncio.gather(
            loaded.predict("say", bad), *(text_of(loaded, "say", text) for text in TEXTS)
        )
    assert (failed.status_code, failed.json()["error"]["code"]) == (424, "inference_failed")
    assert texts == alone


async def test_scores_and_texts_of_many_share_the_runner(loaded: Running) -> None:
    """Any tasks, methods and lengths at once, scored and written: each answer is what it is alone."""
    calls = [(task, text) for task in ("say", "long", "film", "stars", "written") for text in TEXTS]
    some = {"long": {"max_new_tokens": 60}}
    alone = [(await loaded.predict(task, text, **some.get(task, {}))).json()["predictions"][0] for task, text in calls]
    for _ in range(2):
        together = await asyncio.gather(*(loaded.predict(task, text, **some.get(task, {})) for task, text in calls))
        for answer, expected in zip(together, alone, strict=True):
            got = answer.json()["predictions"][0]
            assert got.get("text") == expected.get("text")
            assert got.get("scores", 0) == pytest.approx(expected.get("scores", 0), abs=1e-5)
            assert got.get("value") == expected.get("value")


async def test_more_texts_than_rows(serve_t5: Serve, artifacts: list[bytes]) -> None:
    """They wait for room, all are written, and scores do not wait for them."""
    async with serve_t5(max_decode_rows=2) as running:
        for number in (0, 3, 6):
            await running.upload(artifacts[number])
        beams = running.predict("say", "bad", num_beams=4)
        answers = await asyncio.gather(beams, *(running.predict("say", text) for text in TEXTS * 4))
        assert [answer.status_code for answer in answers] == [200] * 13
        assert max(answer.json()["batch"]["rows"] for answer in answers[1:]) == 2
        with pytest.MonkeyPatch.context() as patch:
            turns = take_steps(patch)
            writing = [asyncio.ensure_future(running.predict("long", "bad", max_new_tokens=60)) for _ in range(4)]
            batcher = running.service.batcher
            await until(lambda: live_rows(running) and live_rows(running) + batcher.queued_rows == 4)
            turns.release()  # so that the second may join the first
            await until(lambda: (live_rows(running), batcher.queued_rows) == (2, 2))
            scored = asyncio.ensure_future(running.predict("film", "bad"))
            await until(lambda: scored.done() or batcher.queued_rows == 3)
            turns.release(20)
            assert (await scored).status_code == 200
            assert not any(one.done() for one in writing)
            for one in writing:
                one.cancel()
            await asyncio.gather(*writing, return_exceptions=True)
            turns.release(1000)


async def test_evicted_and_replaced_adapters_never_mix_into_texts(serve_t5, t5, make_artifact):
    """With room for two of five adapters, and callers who give up in between, every text is its adapter's own."""
    artifacts = {
        f"a{seed}": make_artifact(t5, "lora", task_type="text2text", name=f"a{seed}", seed=seed) for seed in range(5)
    }
    nbytes = read_artifact(artifacts["a0"], t5).nbytes
    async with serve_t5(device_bytes=int(2.5 * nbytes)) as running:
        for data in artifacts.values():
            assert (await running.upload(data)).status_code == 201
        alone = {name: await text_of(running, name, "a good film") for name in artifacts}
        assert len(set(alone.values())) > 2

        async def ask(number: int) -> None:
            name = f"a{number * 3 % 5}"
            answer = await running.predict(name, "a good film", timeout_ms=20 + number % 20 * 40)
            if answer.status_code == 200:
                assert answer.json()["predictions"][0]["text"] == alone[name]
            else:
                assert answer.status_code == 504

        await asyncio.gather(*(ask(number) for number in range(60)))
        await until(lambda: live_rows(running) == 0)


async def test_a_mixed_request_takes_scores_and_texts(loaded: Running) -> None:
    answer = await loaded.predict_mixed(
        {"task": "say", "input": "bad"},
        {"task": "film", "input": "bad"},
        {"task": "say", "input": "bad", "parameters": {"max_new_tokens": 99}},
    )
    text, scored, refused = answer.json()["results"]
    assert text["predictions"][0]["text"]
    assert scored["predictions"][0]["label"]
    assert refused["error"]["code"] == "invalid_input"
