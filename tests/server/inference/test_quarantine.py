"""A version that fails repeatedly is refused at once, without effect on others."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
import torch
from peltier_backbone.backbone import Backbone
from peltier_client.errors import DeadlinePassed, InferenceFailed, QueueFull, Unavailable
from peltier_server.catalog.published import Entry
from peltier_server.inference.quarantine import Quarantine
from peltier_server.metrics.metrics import Metrics
from peltier_server.metrics.series import OTHER
from peltier_server.runner.isolation import NOT_FINITE, NotFinite

from tests.server.conftest import IN_ONE_LOOP, Running, hold, until
from tests.server.metrics.test_metrics import samples_of

pytestmark = IN_ONE_LOOP

# The number of a token that is a word.
NAN_TOKEN = 50


@dataclass
class Clock:
    """A clock that the test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quarantine(clock: Clock) -> Quarantine:
    return Quarantine(Metrics(), clock)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def entry(app_world: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> Entry:
    """A version of the tenant default."""
    await app_world.upload(make_artifact(bert))
    return app_world.service.catalog.find("default", "demo").newest


def attempt(quarantine: Quarantine, entry: Entry, error: BaseException | None = None, tenant: str = "default") -> bool:
    """One request that ends so; whether it was let in."""
    let_in = False
    try:
        with quarantine.attempt(tenant, entry):
            let_in = True
            if error is not None:
                raise error
    except BaseException as raised:
        if raised is not error and let_in:
            raise
    return let_in


def fail(quarantine: Quarantine, entry: Entry, times: int = 3, tenant: str = "default") -> None:
    for _ in range(times):
        assert attempt(quarantine, entry, InferenceFailed("not finite"), tenant)


async def test_three_failures_in_a_row_are_enough(quarantine: Quarantine, entry: Entry) -> None:
    fail(quarantine, entry)
    with pytest.raises(InferenceFailed) as caught, quarantine.attempt("default", entry):
        pass
    assert str(caught.value) == (
        "adapter 'demo' version 1 is in quarantine on this replica after 3 failures in a row, the last of them: "
        "not finite; it is tried again in 10 s"
    )
    assert caught.value.retry_after == 10


async def test_a_success_between_failures_forgives_them(quarantine: Quarantine, entry: Entry) -> None:
    for _ in range(5):
        fail(quarantine, entry, times=2)
        assert attempt(quarantine, entry)


async def test_what_is_not_the_versions_fault_does_not_count(quarantine: Quarantine, entry: Entry) -> None:
    """Cancellation, deadlines, full queues and a lack of memory: neither as a failure nor as a success."""
    others = (asyncio.CancelledError(), DeadlinePassed("late"), QueueFull("full"), Unavailable("no memory"))
    fail(quarantine, entry, times=2)
    for error in others * 3:
        assert attempt(quarantine, entry, error)
    fail(quarantine, entry, times=1)
    assert not attempt(quarantine, entry)


async def test_it_is_tried_again_after_growing_pauses(quarantine: Quarantine, entry: Entry, clock: Clock) -> None:
    """One request at a time, and one that tells nothing leaves its place to the next."""

    def trial() -> None:
        with quarantine.attempt("default", entry):
            assert not attempt(quarantine, entry)
            raise InferenceFailed("again")

    fail(quarantine, entry)
    for pause in (10, 20, 40, 80, 160, 320, 600, 600):
        clock.now += pause - 1
        assert not attempt(quarantine, entry)
        clock.now += 1
        with pytest.raises(InferenceFailed, match="again"):
            trial()
    clock.now += 600
    assert attempt(quarantine, entry, DeadlinePassed("late"))
    assert attempt(quarantine, entry)
    assert attempt(quarantine, entry)
    assert quarantine.of("default") == []


async def test_requests_of_one_moment_count_once(quarantine: Quarantine, entry: Entry) -> None:
    """One bad batch may have many requests in it, and is one failure."""
    attempts = [quarantine.attempt("default", entry) for _ in range(8)]
    for one in attempts:
        one.__enter__()
    error = InferenceFailed("not finite")
    for one in attempts:
        one.__exit__(type(error), error, None)
    assert quarantine.of("default") == []
    fail(quarantine, entry, times=2)
    assert quarantine.of("default")[0].num_failures == 3


async def test_a_tenants_failures_are_its_own(quarantine: Quarantine, entry: Entry) -> None:
    """A tenant cannot disable another's public adapter by failing requests, and other tenants do not see them."""
    fail(quarantine, entry, tenant="b")
    assert not attempt(quarantine, entry, tenant="b")
    assert attempt(quarantine, entry)
    assert [one.adapter.name for one in quarantine.of("b")] == ["demo"]
    assert quarantine.of("default") == []


async def test_old_failures_are_forgotten(quarantine: Quarantine, entry: Entry, clock: Clock) -> None:
    """They keep no memory, and are no sign of anything."""
    fail(quarantine, entry, times=2)
    clock.now += 3601
    fail(quarantine, entry, times=1, tenant="b")
    fail(quarantine, entry, times=2)
    assert attempt(quarantine, entry)


async def quarantined(running: Running) -> dict[tuple[str, ...], float]:
    """The series of the metric, by their labels."""
    return {
        tuple(one.labels[name] for name in OTHER._fields): one.value
        for one in await samples_of(running)
        if one.name == "peltier_quarantined_adapters"
    }


async def test_only_the_bad_version_is_refused(serve, bert, make_artifact, clock, monkeypatch):
    """NaN of version 2 leaves version 1 and its neighbours in the very same batches alone. A bare name goes on to mean
    version 2; /info and the metrics name it; once it computes again it is let out."""
    async with serve() as running:
        for seed in (1, 2):
            await running.upload(make_artifact(bert, seed=seed))
        text = "a good film"
        alone = await running.scores("demo@1", text)
        monkeypatch.setattr(running.service.quarantine, "_clock", clock)
        async with turned_to_nan(running, "demo"):
            for _ in range(3):
                good, bad = await predict_together(running, text, "demo@1", "demo")
                assert list(good["predictions"][0]["scores"].values()) == pytest.approx(alone, abs=1e-5)
                assert bad["error"]["code"] == "inference_failed"
        refused = await running.predict("demo", text)
        assert (refused.status_code, refused.headers["retry-after"]) == (424, "10")
        assert "version 2 is in quarantine on this replica after 3 failures" in refused.json()["error"]["message"]
        assert await running.scores("demo@1", text) == pytest.approx(alone, abs=1e-5)
        (named,) = (await running.client.get("/info")).json()["quarantined"]
        assert (named["adapter"]["version"], named["num_failures"]) == (2, 3)
        assert await quarantined(running) == {("default", "demo", "2"): 1, OTHER: 0}
        clock.now = 1e12
        assert (await running.predict("demo", text)).status_code == 200
        assert await quarantined(running) == {OTHER: 0}


async def test_nan_of_any_method_stays_with_its_rows(serve, bert, make_artifact):
    """One batch of a sound and a broken version of each method: the sound ones answer as alone, the others read 424."""
    presets = ("compacter", "houlsby", "lora", "prefix", "bitfit", "unipelt-apl", "adamix")
    text = "the plot was not very good"
    async with serve() as running:
        for name in presets:
            for seed in (1, 2):
                await running.upload(make_artifact(bert, name, name=name, seed=seed))
        alone = {name: await running.scores(f"{name}@1", text) for name in presets}
        async with AsyncExitStack() as broken:
            for name in presets:
                await broken.enter_async_context(turned_to_nan(running, name))
            tasks = [f"{name}{version}" for name in presets for version in ("@1", "@2")]
            results = await predict_together(running, text, *tasks)
    for name, good, bad in zip(presets, results[::2], results[1::2], strict=True):
        assert list(good["predictions"][0]["scores"].values()) == pytest.approx(alone[name], abs=1e-5), name
        assert bad["error"]["code"] == "inference_failed", name


async def predict_together(running: Running, text: str, *tasks: str) -> list[dict[str, Any]]:
    """The results of one text for each task, all of one batch."""
    async with hold(running):
        asked = asyncio.ensure_future(running.predict_mixed(*({"task": task, "input": text} for task in tasks)))
        await until(lambda: len(running.service.batcher._rows) == len(tasks))
    results: list[dict[str, Any]] = (await asked).json()["results"]
    assert {result["batch"]["rows"] for result in results if "batch" in result} == {len(tasks)}
    return results


@asynccontextmanager
async def turned_to_nan(running: Running, name: str) -> AsyncIterator[None]:
    """The newest version's tensors are NaN on the device until the block ends; the model itself computes with them."""
    async with running.service.slots.lease(
        running.service.catalog.find("default", name).newest.owned, "default"
    ) as lease:
        flat = lease.resident.body_slot.flat
        sound = flat.clone()
        flat.fill_(torch.nan)
        yield
        flat.copy_(sound)


@pytest.mark.parametrize(
    ("family", "parameters"), [("bert", {}), ("t5_gated", {"answer": "score"}), ("t5_gated", {"answer": "generate"})]
)
async def test_inputs_without_a_finite_output_shut_no_version(serve, make_artifact, request, family, parameters):
    """Each reads 424, however many there are, and every other input of the tenant is answered as before."""
    backbone: Backbone = request.getfixturevalue(family)
    word = backbone.tokenizer.decode([NAN_TOKEN])
    async with serve(backbone=request.getfixturevalue(f"{family}_directory")) as running:
        await running.upload(make_artifact(backbone))
        before = (await running.predict("demo", "a good film", **parameters)).json()["predictions"]
        served = running.service.predictor._backbone
        table = served.t5.embedding if served.config.generates else served.bert.embeddings.tokens
        table.weight()[NAN_TOKEN] = torch.nan
        for _ in range(4):
            failed = await running.predict("demo", f"a {word} film", **parameters)
            assert (failed.status_code, failed.json()["error"]["message"]) == (424, NOT_FINITE)
            mixed = await running.predict("demo", ["a good film", f"a {word} film"], **parameters)
            assert (mixed.status_code, mixed.json()["error"]["message"]) == (424, f"input 1: {NOT_FINITE}")
        after = await running.predict("demo", "a good film", **parameters)
        assert (after.status_code, after.json()["predictions"]) == (200, before)
        assert (await running.client.get("/info")).json()["quarantined"] == []


async def test_documents_without_a_finite_output_are_named(serve, bert, bert_directory, make_artifact):
    word = bert.tokenizer.decode([NAN_TOKEN])
    async with serve(backbone=bert_directory) as running:
        await running.upload(make_artifact(bert, "lora", task_type="ranking", inputs="pair", name="pairs"))
        await running.upload(make_artifact(bert, "lora", task_type="multi-vector-embedding", name="vectors"))
        running.service.predictor._backbone.bert.embeddings.tokens.weight()[NAN_TOKEN] = torch.nan
        for task in ("pairs", "vectors"):
            body = {"adapter_id": task, "query": "film", "texts": ["a good film", f"a {word} film"]}
            for _ in range(4):
                answer = await running.client.post("/rerank", json=body)
                assert (answer.status_code, NOT_FINITE in answer.text) == (424, True), answer.text
        assert (await running.client.get("/info")).json()["quarantined"] == []


async def test_an_input_without_a_finite_output_tells_nothing_of_its_version(quarantine, entry, clock):
    """It neither counts as a failure nor forgives those before it, and a trial with it leaves the version shut."""
    fail(quarantine, entry, times=2)
    assert attempt(quarantine, entry, NotFinite(NOT_FINITE))
    assert quarantine.of("default") == []
    fail(quarantine, entry, times=1)
    clock.now += 10
    assert attempt(quarantine, entry, NotFinite(NOT_FINITE))
    assert [one.num_failures for one in quarantine.of("default")] == [3]
    assert attempt(quarantine, entry)
    assert quarantine.of("default") == []
