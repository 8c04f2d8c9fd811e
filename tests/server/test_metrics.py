"""What Prometheus reads."""

from collections.abc import Callable

import pytest
from peltier_adapters.artifact import read_artifact
from peltier_backbone.load import Backbone
from prometheus_client.parser import text_string_to_metric_families

from tests.server.conftest import Running

CONTRACT = {
    "peltier_requests_total",
    "peltier_request_seconds_count",
    "peltier_queue_seconds_count",
    "peltier_batch_rows_sum",
    "peltier_batch_tokens_sum",
    "peltier_batch_adapters_sum",
    "peltier_compute_seconds_count",
    "peltier_adapter_load_seconds_count",
    "peltier_adapter_loads_total",
    "peltier_adapter_evictions_total",
    "peltier_adapter_cache_requests_total",
    "peltier_adapters",
    "peltier_adapter_bytes",
    "peltier_queue_tokens",
    "peltier_uploads_total",
    "peltier_tenant_served_tokens_total",
    "peltier_tenant_queue_seconds_total",
    "peltier_tenant_rows_total",
    "peltier_truncated_inputs_total",
}


async def scrape(running: Running) -> dict[str, float]:
    page = (await running.client.get("/metrics")).text
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    return {f"{one.name}{sorted(one.labels.values()) or ''}": one.value for one in samples}


@pytest.fixture
async def busy(running: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> Running:
    """A server that took an upload, refused one, and answered twice."""
    await running.upload(make_artifact(bert, name="a"))
    await running.upload(b"nonsense")
    await running.predict("a", ["a good film", "bad"])
    await running.predict("b", "bad")
    return running


async def test_every_name_of_the_contract_is_there(
    serve: Callable[..., object], bert: Backbone, make_artifact: Callable[..., bytes]
) -> None:
    """With its unit in its name."""
    artifacts = [make_artifact(bert, name=f"a{seed}", seed=seed) for seed in range(3)]
    room_for_one = int(1.5 * read_artifact(artifacts[0], bert).nbytes)
    async with serve(device_bytes=room_for_one, host_bytes=room_for_one) as running:
        for data in artifacts:
            await running.upload(data)
        await running.predict("a0", "good " * 200)
        names = {name.partition("[")[0] for name in await scrape(running)}
    assert names >= CONTRACT


async def test_requests_and_uploads_are_counted(busy: Running) -> None:
    """By status, and by what became of them."""
    values = await scrape(busy)
    assert values["peltier_requests_total['200', 'default']"] == 1
    assert values["peltier_requests_total['404', 'default']"] == 1
    assert values["peltier_uploads_total['created']"] == 1
    assert values["peltier_uploads_total['refused']"] == 1


async def test_truncated_inputs_are_counted(busy: Running) -> None:
    """By tenant, whichever way they came; what was refused or fits is not."""
    long = "good " * 200
    await busy.predict("a", [long, "bad", long])
    await busy.predict_mixed({"task": "a", "input": long}, {"task": "a", "input": "bad"})
    await busy.predict("a", long, truncate=False)
    assert (await scrape(busy))["peltier_truncated_inputs_total['default']"] == 3


async def test_batches_and_tiers_are_measured(busy: Running) -> None:
    """Rows, tokens, adapters, and the bytes that they take."""
    before = await scrape(busy)
    await busy.predict("a", ["a good film", "bad"])
    values = await scrape(busy)
    assert values["peltier_batch_rows_sum"] == before["peltier_batch_rows_sum"] + 2
    assert values["peltier_adapter_loads_total"] == 1
    assert values["peltier_adapters['device']"] == values["peltier_adapters['host']"] == 1
    assert values["peltier_adapter_bytes['device']"] == busy.service.slots.used_bytes > 0
    assert values["peltier_adapter_cache_requests_total['device']"] == 2
    assert values["peltier_queue_tokens['default']"] == 0


async def test_openmetrics_is_spoken_to_those_who_ask(running: Running) -> None:
    """The format follows the Accept header."""
    answer = await running.client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
