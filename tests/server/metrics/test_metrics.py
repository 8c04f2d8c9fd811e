"""The page that Prometheus reads."""

import re
from collections import Counter as Counts
from collections.abc import Callable

import pytest
from peltier_backbone.backbone import Backbone
from peltier_server.app import create_app
from peltier_server.extensions.settings import Settings
from peltier_server.metrics.metrics import Exposition, Metrics, merge_pages
from peltier_server.metrics.series import Histogram, VersionLabels
from prometheus_client import CollectorRegistry, Counter, Gauge, PlatformCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from docs.generator.metrics_page import metrics_page
from tests.server.conftest import Running

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;"
    "q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
ACCEPTS = (
    "",
    "*/*",
    "text/plain;version=0.0.4",
    "text/plain;version=1.0.0;escaping=values",
    "application/openmetrics-text",
    "application/openmetrics-text;version=1.0.0;escaping=dots",
    PROMETHEUS,
)

# The names that dashboards and the documents rely on.
CONTRACT = """
requests_total request_seconds queue_seconds batch_rows batch_tokens batch_adapters compute_seconds uploads_total
adapter_load_seconds adapter_loads_total adapter_evictions_total adapter_cache_requests_total adapters adapter_bytes
queue_tokens tenant_served_tokens_total tenant_queue_seconds_total tenant_rows_total truncated_inputs_total
"""


@pytest.fixture
def registry() -> CollectorRegistry:
    """Each kind of metric that the server has, with labels to escape and values to format."""
    registry = CollectorRegistry()
    PlatformCollector(registry=registry)
    counter = Counter("calls_total", 'Calls, \\ "quoted"\nin two lines', ("zone", "code"), registry=registry)
    counter.labels('a"b\\c\nd', "200").inc(3)
    counter.labels("é", "404").inc(12345678.9)
    Gauge("level", "A level", registry=registry).set(float("inf"))
    series = Histogram("wait_seconds", "A wait", (0.001, 10.0), ("who",), registry).labels("me")
    series.observe(0.5, 3_000_000)
    return registry


@pytest.mark.parametrize("accept", ACCEPTS)
def test_a_page_is_that_of_the_library(registry: CollectorRegistry, accept: str) -> None:
    """To the byte, in every format; also when it is written again."""
    encode, content_type = choose_encoder(accept)
    exposition = Exposition(registry)
    for _ in range(2):
        assert exposition.page(accept) == (encode(registry), content_type)


def test_a_series_that_ends_is_not_remembered(registry: CollectorRegistry) -> None:
    counter, exposition = Counter("gone", "Ends", ("who",), registry=registry), Exposition(registry)
    counter.labels("me").inc()
    assert b'gone_total{who="me"} 1.0' in exposition.page("")[0]
    counter.remove("me")
    assert b'me"} 1.0\ngone' not in exposition.page("")[0]
    assert not [key for key in exposition._names if key[0] == "gone_total"]


async def samples_of(running: Running) -> list[Sample]:
    """Every line of the page."""
    page = (await (running.operator or running.client).get("/metrics")).text
    return [sample for family in text_string_to_metric_families(page) for sample in family.samples]


async def scrape(running: Running) -> dict[str, float]:
    return {f"{one.name}{sorted(one.labels.values()) or ''}": one.value for one in await samples_of(running)}


@pytest.fixture
async def busy(caller: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> Running:
    """A tenant whose adapter has answered once, and whose request for another was refused."""
    await caller.publish("a", make_artifact(bert, name="a"))
    await caller.predict("a", ["a good film", "bad"])
    await caller.predict("b", "bad")
    return caller


async def test_requests_and_uploads_are_counted(running, bert, make_artifact):
    await running.upload(make_artifact(bert, name="a"))
    await running.upload(b"nonsense")
    for task in ("a", "b"):
        await running.predict(task, "bad")
    values = await scrape(running)
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
    assert (await scrape(busy))[f"peltier_truncated_inputs_total['{busy.tenant}']"] == 3


async def test_batches_and_tiers_are_measured(running, bert, make_artifact):
    await running.upload(make_artifact(bert, name="a"))
    before = await scrape(running)
    await running.predict("a", ["a good film", "bad"])
    values = await scrape(running)
    assert values["peltier_batch_rows_sum"] == before["peltier_batch_rows_sum"] + 2
    assert values["peltier_adapter_loads_total"] == 1
    assert values["peltier_adapters['device']"] == values["peltier_adapters['host']"] == 1
    assert values["peltier_adapter_bytes['device']"] == running.service.slots.device.used_bytes > 0
    assert values["peltier_adapter_cache_requests_total['device']"] == 1
    assert values["peltier_queue_tokens['default']"] == 0
    assert values["peltier_tenant_queue_seconds_total['default']"] > 0
    assert sum(value for name, value in values.items() if name.startswith("peltier_adapter_load_seconds_count")) == 1


async def test_readiness_and_the_bound_of_the_queue_are_measured(running: Running) -> None:
    values = await scrape(running)
    assert values["peltier_ready"] == 1
    assert values["peltier_queue_max_tokens"] == running.service.settings.queue.max_queue_tokens
    running.app.state.lifecycle.leave()
    assert (await running.client.get("/ready")).status_code == 503
    assert (await scrape(running))["peltier_ready"] == 0


async def test_a_split_can_be_watched(running: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> None:
    """Of a canary's tenth every request is counted for the version that answered it, with its time."""
    await running.publish("a", *(make_artifact(bert, name="a", seed=seed) for seed in (1, 2)))
    split = {"versions": {"1": 0.9, "2": 0.1}}
    assert (await running.client.put("/v1/adapters/a/aliases/production", json=split)).status_code == 200
    answered = Counts[str]()
    for number in range(100):
        answer = await running.client.post(
            "/v1/tasks/a/predict", json={"inputs": "good"}, headers={"x-request-id": f"caller-{number}"}
        )
        answered[answer.headers["x-adapter-version"]] += 1
    found = await of_versions(running)
    assert {version: found["total", "a", version, "200"] for version in ("1", "2")} == answered
    assert {version: found["count", "a", version, None] for version in ("1", "2")} == answered
    assert 0.04 < answered["2"] / 100 < 0.18


async def test_each_part_of_a_mixed_request_is_counted_for_its_version(busy, bert, make_artifact):
    """With its own status; a task that is unknown makes no label."""
    await busy.publish("c", make_artifact(bert, name="c"))
    before = await of_versions(busy)
    parts = [
        {"task": task, "input": text} for task, text in (("a", "bad"), ("c", "good"), ("b", "x"), ("c", ["p", "q"]))
    ]
    assert (await busy.predict_mixed(*parts)).status_code == 200
    after = await of_versions(busy)
    grown = {key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key, 0)}
    assert {key: value for key, value in grown.items() if key[0] == "total"} == {
        ("total", "a", "1", "200"): 1,
        ("total", "c", "1", "200"): 1,
        ("total", "c", "1", "422"): 1,
    }
    assert grown["count", "c", "1", None] == 2


async def test_refusals_of_a_version_are_counted_for_it(busy: Running) -> None:
    """What the adapter has to do with is in its series, what came to no adapter is not."""
    await busy.predict("a", [["a", "pair"]])
    await busy.predict("a", "a", timeout_ms="never")
    found = await of_versions(busy)
    assert found["total", "a", "1", "422"] == 1
    assert {key[1] for key in found} == {"a"}


async def of_versions(running: Running) -> dict[tuple[str, str, str, str | None], float]:
    """What the page has of versions of the tenant, by the last word of the name, adapter, version and status."""
    return {
        (one.name.rpartition("_")[2], one.labels["adapter"], one.labels["version"], one.labels.get("code")): one.value
        for one in await samples_of(running)
        if re.fullmatch("peltier_adapter_requests_total|peltier_adapter_request_seconds_(sum|count)", one.name)
        and one.labels["tenant"] == running.tenant
    }


async def test_the_process_is_measured(caller: Running) -> None:
    """Memory, processor time, open files and the garbage collector, under the names that dashboards know."""
    values = await scrape(caller)
    for name in ("resident_memory_bytes", "cpu_seconds_total", "open_fds", "max_fds", "start_time_seconds"):
        assert values[f"process_{name}"] > 0
    assert "python_gc_collections_total['2']" in values
    assert any(name.startswith("python_info") for name in values)


def test_the_metric_names_as_many_versions_in_quarantine_as_have_series() -> None:
    """Further ones share a series, so the sum is the number of all."""
    metrics = Metrics(max_versions=2)
    for number in (5, 3):
        metrics.set_quarantined([VersionLabels("acme", "a", str(version)) for version in range(number)])
        lines = re.findall(
            r'^peltier_quarantined_adapters.*version="(\w+)"} (.+)$', metrics.exposition("")[0].decode(), re.M
        )
        assert lines == [("0", "1.0"), ("1", "1.0"), ("other", f"{number - 2}.0")]


def described() -> dict[str, tuple[str, set[str]]]:
    """Type and labels of each metric, as the page of metrics has them."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*)\|", metrics_page(), flags=re.MULTILINE)
    return {name: (kind, set(re.findall(r"\w+", labels))) for name, kind, labels in rows}


def test_the_documents_list_every_metric() -> None:
    """Neither more nor fewer, with the type that Prometheus is told."""
    page = create_app(Settings()).state.metrics.exposition("")[0].decode()
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, flags=re.MULTILINE))
    served = {name: kind for name, kind in kinds.items() if not name.endswith("_created")}
    assert {f"peltier_{name}" for name in CONTRACT.split()} <= served.keys()
    assert {name: kind for name, (kind, _) in described().items()} == served


async def test_the_documents_list_every_label(busy: Running) -> None:
    """Of the series that a server has after a while."""
    listed = {name.removesuffix("_total"): labels for name, (_, labels) in described().items()}
    for one in await samples_of(busy):
        family = re.sub("_(total|created|bucket|sum|count)$", "", one.name)
        assert one.labels.keys() - {"le"} == listed[family], one.name


async def test_openmetrics_is_spoken_to_those_who_ask(caller: Running) -> None:
    answer = await caller.client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")


def test_the_pages_of_replicas_are_one_page() -> None:
    """Every sample of each page, with the label `replica`; each metric is declared once."""
    pages = {}
    for replica, seconds in (("one", 0.5), ("two", 1.5)):
        metrics = Metrics()
        metrics.observe_request("acme", 200, seconds)
        pages[replica] = metrics.exposition("text/plain")[0]
    merged = list(text_string_to_metric_families(merge_pages(pages).decode()))
    names = [family.name for family in merged]
    assert len(names) == len(set(names))
    for replica, page in pages.items():
        own = {
            (s.name, *s.labels.items()): s.value
            for f in text_string_to_metric_families(page.decode())
            for s in f.samples
        }
        found = {
            (s.name, *((k, v) for k, v in s.labels.items() if k != "replica")): s.value
            for f in merged for s in f.samples if s.labels["replica"] == replica
        }  # fmt: skip
        assert found == own
    assert merge_pages({}) == b""
