"""Predictions over HTTP."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable

import pytest
from peltier_adapters.artifact.artifact import read_artifact
from peltier_backbone.backbone import Backbone
from peltier_client.protocol.administration import TenantQuotas
from peltier_server.inference import tokenizing

from tests.server.conftest import Listening, Running, Tenant, hold, until
from tests.support.rate_windows import stand_still


@pytest.fixture(scope="module")
def artifacts(bert: Backbone, make_artifact: Callable[..., bytes]) -> list[bytes]:
    return [
        make_artifact(bert, "compacter", name="sst2"),
        make_artifact(bert, "lora", name="nli", inputs="pair", labels=["yes", "no", "maybe"]),
        make_artifact(
            bert, "bitfit", name="stsb", task_type="regression", labels=["score"], overrides={"first_block": "1"}
        ),
        make_artifact(
            bert,
            "adamix",
            name="topics",
            task_type="multilabel",
            labels=["a", "b", "c"],
            overrides={"first_block": "2"},
        ),
        make_artifact(bert, "unipelt-apl", name="gated"),
    ]


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


def num_waiting(running: Running) -> int:
    return len(running.service.batcher._rows)


async def test_the_body_is_the_contracts(loaded: Running) -> None:
    body = (await loaded.predict("sst2", "a good film")).json()
    adapter, timings = body["adapter"], body["timings_ms"]
    assert body["task"] == "sst2"
    assert {**adapter, "digest": adapter["digest"][:7]} == {
        "tenant": loaded.tenant, "name": "sst2", "version": 1, "digest": "sha256:", "preset": "compacter",
    }  # fmt: skip
    assert body["usage"] == {"tokens": 5, "truncated_inputs": 0}
    assert body["batch"] == {"rows": 1, "adapters": 1}
    assert 0 <= timings["queue"] + timings["load"] + timings["compute"] <= timings["total"] + 0.01
    prediction = body["predictions"][0]
    assert list(prediction["scores"]) == ["negative", "positive"]
    assert prediction["score"] == max(prediction["scores"].values())
    assert sum(prediction["scores"].values()) == pytest.approx(1)


async def test_the_headers_are_the_contracts(loaded: Running) -> None:
    answer = await loaded.predict("sst2@1", "a good film")
    assert answer.headers["x-adapter-version"] == "1"
    assert answer.headers["x-adapter-digest"] == answer.json()["adapter"]["digest"]
    assert answer.headers["x-adapter-tier"] == answer.json()["tier"] == "device"
    assert float(answer.headers["x-queue-time-ms"]) == answer.json()["timings_ms"]["queue"]
    assert float(answer.headers["x-compute-time-ms"]) == answer.json()["timings_ms"]["compute"]
    assert len(answer.headers["x-request-id"]) == 32
    assert answer.headers["x-tenant"] == loaded.tenant
    assert "x-tenant" not in (await loaded.client.get("/health")).headers


async def test_a_request_id_is_taken_over(loaded: Running) -> None:
    """So that one id follows a call through several services; what is not plain text is replaced."""
    for given, kept in (("my-id.1", True), ("x" * 200, False)):
        answer = await loaded.client.get("/health", headers={"x-request-id": given})
        assert (answer.headers["x-request-id"] == given) is kept


async def test_each_kind_of_task_has_its_answer(loaded: Running) -> None:
    assert list((await loaded.predict("stsb", "bad")).json()["predictions"][0]) == ["value"]
    assert list((await loaded.predict("topics", "bad")).json()["predictions"][0]) == ["labels", "scores"]
    pairs = (await loaded.predict("nli", [["a film", "a plot"], ["bad", "good"]])).json()
    assert [list(one["scores"]) for one in pairs["predictions"]] == [["yes", "no", "maybe"]] * 2


async def test_parameters(loaded: Running) -> None:
    """`top_k` keeps the best, `raw_scores` gives logits, `return_gates` the gates of UniPELT."""
    best = (await loaded.predict("nli", [["a", "b"]], top_k=1)).json()["predictions"][0]
    assert best["scores"] == {best["label"]: best["score"]}
    raw = (await loaded.predict("sst2", "bad", raw_scores=True)).json()["predictions"][0]["scores"]
    assert sum(raw.values()) != pytest.approx(1)
    gates = (await loaded.predict("gated", "bad", return_gates=True)).json()["predictions"][0]["gates"]
    assert all(len(layers) == 3 and all(0 <= gate <= 1 for gate in layers) for layers in gates.values())
    assert "gates" not in (await loaded.predict("gated", "bad")).json()["predictions"][0]


async def test_a_mixed_answer_says_which_inputs_were_truncated(loaded: Running) -> None:
    """Each result its own, and a header how many in all; one that must not be truncated is an error of its part."""
    long = "good " * 200
    items = [{"task": "sst2", "input": long}, {"task": "nli", "input": [long, "bad"]}, {"task": "sst2", "input": "bad"}]
    answer = await loaded.predict_mixed(
        *items, {"task": "nli", "input": ["a", long], "parameters": {"truncate": False}}
    )
    *answered, refused = answer.json()["results"]
    assert [one["usage"]["truncated_inputs"] for one in answered] == [1, 1, 0]
    assert answer.headers["x-truncated-inputs"] == "2"
    assert refused["error"]["message"] == "the input has 204 tokens; this task takes at most 64"
    assert "x-truncated-inputs" not in (await loaded.predict_mixed(items[2])).headers


BAD_INPUT = [
    ("nope", "a", 404, "adapter 'nope' does not exist"),
    ("sst2@7", "a", 404, "adapter 'sst2' has no version 7; its newest is 1"),
    ("sst2@07", "a", 422, "version '07' is not allowed"),
    ("UPPER", "a", 422, "task 'UPPER' is not allowed"),
    ("sst2", "", 422, "an input text is empty"),
    ("sst2", ["a", " "], 422, "input 1: an input text is empty"),
    ("sst2", [["a", "b"]], 422, "the input is a pair of texts [text, pair]; this task takes one text"),
    ("nli", "a", 422, "the input is one text; this task takes a pair"),
    ("sst2", [], 422, "inputs"),
    ("sst2", 3, 422, "inputs"),
    ("sst2", None, 422, "inputs"),
    ("sst2", ["a"] * 1025, 422, "the request has 1025 inputs; at most 1024 are allowed"),
    ("sst2", "x" * 3_000_000, 413, "the request body is larger than this server accepts"),
]


async def test_bad_input_gets_one_clear_sentence(loaded: Running) -> None:
    """The code of the contract, and a message that names the thing, the value and the rule."""
    for task, inputs, status, sentence in BAD_INPUT:
        answer = await loaded.predict(task, inputs)
        assert answer.status_code == status, sentence
        assert sentence in answer.json()["error"]["message"], sentence


async def test_a_mixed_request_has_one_result_each(loaded: Running) -> None:
    """In order; one that fails leaves the others alone."""
    answer = await loaded.predict_mixed(
        {"task": "sst2", "input": "a good film"},
        {"task": "nope", "input": "bad"},
        {"task": "nli", "input": ["a film", "a plot"]},
        {"task": "sst2", "input": ["a", "pair"]},
        {"task": "../sst2", "input": "bad"},
        {"task": "stsb", "input": "bad", "parameters": {"raw_scores": True}},
    )
    results = answer.json()["results"]
    assert answer.status_code == 200
    assert [result.get("task") or result["error"]["code"] for result in results] == [
        "sst2", "adapter_not_found", "nli", "invalid_input", "invalid_input", "stsb",
    ]  # fmt: skip
    assert list(results[0]["predictions"][0]["scores"].values()) == await loaded.scores("sst2", "a good film")


async def test_one_input_has_an_answer_of_each_task(loaded: Running) -> None:
    """In order, and the same as asked one by one; a task that fails leaves the others alone."""
    answer = await loaded.predict_tasks("sst2", "nope", "topics@1", "nli", "../x", "gated", raw_scores=True)
    body = answer.json()
    assert answer.status_code == 200
    assert body["tasks"] == ["sst2", "nope", "topics@1", "nli", "../x", "gated"]
    shown = [result.get("task") or result["error"]["code"] for result in body["results"]]
    assert shown == ["sst2", "adapter_not_found", "topics", "invalid_input", "invalid_input", "gated"]
    for number, task in ((0, "sst2"), (2, "topics"), (5, "gated")):
        alone = (await loaded.predict(task, "a good film", raw_scores=True)).json()
        found = body["results"][number]
        assert found["predictions"][0]["scores"] == pytest.approx(alone["predictions"][0]["scores"], abs=1e-5)
        assert found["usage"] == alone["usage"]


async def test_a_group_is_every_adapter_with_a_prefix(caller: Running, artifacts: list[bytes]) -> None:
    """In order of name and in its place among the tasks; one without members is an error of its own."""
    await caller.upload(artifacts[2])
    for name in ("tri.b", "tri.a", "trio"):
        await caller.upload(artifacts[0], name=name)
    body = (await caller.predict_tasks("stsb", "tri.*", "no*", "tri*")).json()
    assert body["tasks"] == ["stsb", "tri.a", "tri.b", "no*", "tri.a", "tri.b", "trio"]
    assert body["results"][3]["error"] == {
        "code": "adapter_not_found",
        "message": "group 'no*' has no adapters: no name begins with 'no'",
        "details": [],
    }
    answered = [result["task"] for result in body["results"] if "task" in result]
    assert answered == ["stsb", "tri.a", "tri.b", "tri.a", "tri.b", "trio"]


async def test_too_many_tasks_are_refused(serve: Callable[..., object], artifacts: list[bytes]) -> None:
    """Those of groups count too."""
    async with serve(max_inputs=3) as running:
        for name in ("a.1", "a.2"):
            await running.upload(artifacts[0], name=name)
        assert (await running.predict_tasks("a.*", "a.1")).status_code == 200
        answers = [await running.predict_tasks(*tasks) for tasks in (["a.*", "a.*"], ["a.1"] * 4)]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert {answer.json()["error"]["message"] for answer in answers} == {
        "the request has 4 tasks; at most 3 are allowed"
    }


@pytest.mark.parametrize(
    "body",
    [{}, {"tasks": ["a"]}, {"input": "a"}, {"tasks": ["a"], "input": "a", "requests": [{"task": "a", "input": "b"}]}],
    ids=str,
)
async def test_a_body_has_one_of_two_forms(body: dict[str, object], loaded: Running) -> None:
    answer = await loaded.client.post("/v1/predict", json=body)
    assert answer.status_code == 422
    assert "a body has either requests, or tasks and an input" in answer.json()["error"]["message"]


async def test_one_input_is_read_once(loaded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long text of many tasks is tokenised once for all that read it alike: of a kind of task and a length. If it is
    refused, each task is charged for it."""
    read = tokenizing.encode_input
    texts: list[object] = []
    monkeypatch.setattr(
        tokenizing, "encode_input", lambda *given, **more: texts.append(given[2]) or read(*given, **more)
    )
    results = (await loaded.predict_tasks(*["sst2", "gated", "stsb"] * 7, text="film " * 3000)).json()["results"]
    assert [result["usage"]["tokens"] for result in results] == [64] * 21
    assert len(texts) == 2
    stand_still(monkeypatch)
    monkeypatch.setattr(loaded.app.state.enforcer, "quotas_of", lambda tenant: TenantQuotas(tokens_per_second=0.2))
    codes = [
        result["error"]["code"] for result in (await loaded.predict_tasks(*["sst2"] * 4, text=" ")).json()["results"]
    ]
    assert codes == ["invalid_input"] * 2 + ["quota_exceeded"] * 2


async def test_a_surprise_in_one_part_leaves_the_others_alone(loaded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = loaded.service.slots.lease
    bad = loaded.service.catalog.get(loaded.tenant, "stsb").newest.digest
    monkeypatch.setattr(
        loaded.service.slots, "lease", lambda owned, *more: 1 / 0 if owned.digest == bad else lease(owned, *more)
    )
    answer = await loaded.predict_mixed({"task": "stsb", "input": "bad"}, {"task": "sst2", "input": "bad"})
    first, second = answer.json()["results"]
    assert first["error"]["code"] == "internal_error"
    assert second["task"] == "sst2"


async def test_a_mixed_request_travels_in_one_batch(loaded: Running) -> None:
    items = [{"task": task, "input": "a good film"} for task in ("sst2", "stsb", "topics", "gated")]
    async with hold(loaded):
        waiting = asyncio.ensure_future(loaded.predict_mixed(*items))
        await until(lambda: num_waiting(loaded) == len(items))
    batches = [result["batch"] for result in (await waiting).json()["results"]]
    assert batches == [{"rows": 4, "adapters": 4}] * 4


async def test_an_answer_does_not_depend_on_its_neighbours(loaded: Running) -> None:
    texts = ("bad", "the plot was not very good , and the actor is dull", "a film")
    calls = list(itertools.product(("sst2", "topics", "gated"), texts))
    alone = [await loaded.scores(task, text) for task, text in calls]
    async with hold(loaded):
        together = asyncio.gather(*(loaded.scores(task, text) for task, text in calls))
        await until(lambda: num_waiting(loaded) == len(calls))
    for one, other in zip(alone, await together, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


async def test_a_deadline_is_kept_while_the_runner_is_busy(loaded: Running) -> None:
    """504 comes in time, and the row is never computed."""
    async with hold(loaded):
        answer = await loaded.predict("sst2", "bad", timeout_ms=20)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_passed")
    assert (await loaded.predict("sst2", "bad")).json()["batch"]["rows"] == 1


async def test_a_caller_who_hangs_up_is_dropped(loaded: Running) -> None:
    async with hold(loaded):
        await loaded.run(_hang_up(loaded))
        await until(lambda: loaded.app.state.lifecycle.idle)
    assert (await loaded.predict("sst2", "bad")).json()["batch"]["rows"] == 1


async def _hang_up(loaded: Running) -> None:
    """Calls the app as a server would whose client disconnects once its row waits."""
    body = b'{"inputs": "a good film"}'
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"authorization", loaded.client.headers["authorization"].encode()),
    ]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/v1/tasks/sst2/predict", "raw_path": b"/v1/tasks/sst2/predict", "query_string": b"",
        "root_path": "", "headers": headers, "client": ("test", 1), "server": ("peltier", 80),
    }  # fmt: skip
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])
    sent = []

    async def receive() -> dict[str, object]:
        message = next(messages, None)
        if message is None:
            await until(lambda: num_waiting(loaded))
            return {"type": "http.disconnect"}
        return message

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    await loaded.app(scope, receive, send)
    assert sent[0]["status"] == 499


async def test_thrashing_slots_never_mix_adapters(serve, bert, make_artifact):
    """With room for two of eight adapters, and callers who give up in between, every answer is still its own."""
    artifacts = {f"a{seed}": make_artifact(bert, "lora", name=f"a{seed}", seed=seed) for seed in range(8)}
    nbytes = read_artifact(artifacts["a0"], bert).nbytes
    async with serve(device_bytes=int(2.5 * nbytes), host_bytes=int(3.5 * nbytes)) as running:
        for data in artifacts.values():
            assert (await running.upload(data)).status_code == 201
        alone = {name: await running.scores(name, "a good film") for name in artifacts}
        assert len({round(scores[0], 4) for scores in alone.values()}) == 8

        async def ask(number: int) -> None:
            name = f"a{number * 5 % 8}"
            answer = await running.predict(name, "a good film", timeout_ms=1 + number % 40 * 10)
            if answer.status_code == 200:
                scores = list(answer.json()["predictions"][0]["scores"].values())
                assert scores == pytest.approx(alone[name], abs=1e-5)
            else:
                assert answer.status_code == 504

        await asyncio.gather(*(ask(number) for number in range(200)))
        assert running.service.slots.device.used_bytes <= 2.5 * nbytes
