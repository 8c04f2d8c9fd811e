"""Values of labels: keys, tenants and routes."""

from collections import Counter as Counts
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from peltier_server.metrics.metrics import Metrics
from peltier_server.metrics.series import OTHER, Histogram, LabelSlots, TenantLabels, VersionLabels, VersionMetrics
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Histogram as Theirs
from prometheus_client.parser import text_string_to_metric_families

from tests.server.conftest import Running
from tests.server.metrics.test_metrics import samples_of

BOUNDS = (0.5, 1, 2.5)

DEMO = "/v1/tasks/demo/predict"
TEMPLATE = "/v1/tasks/{task}/predict"

SeriesKey = tuple[VersionLabels, str]


def page(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return sorted(line for line in lines if "_created" not in line)


@given(observed=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([0.1, 0.5, 0.6, 1, 2.5, 3.0]))))
def test_the_page_is_that_of_the_library(observed: list[tuple[str, float]]):
    """The same names, labels, bounds, counts and sums; a value equal to a bound is within it."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    own = Histogram("x_seconds", "Some seconds", BOUNDS, ("who",), ours)
    other = Theirs("x_seconds", "Some seconds", ("who",), buckets=BOUNDS, registry=theirs)
    for who, value in observed:
        own.labels(who).observe(value)
        other.labels(who).observe(value)
    assert page(ours) == page(theirs)


def test_a_series_without_labels_is_there_from_the_start():
    registry = CollectorRegistry()
    Histogram("a_seconds", "Some seconds", BOUNDS, (), registry)
    labelled = Histogram("b_seconds", "Some seconds", BOUNDS, ("who",), registry)
    labelled.labels("me").observe(1)
    labelled.remove("me")
    assert registry.get_sample_value("a_seconds_count") == 0
    assert registry.get_sample_value("b_seconds_count", {"who": "me"}) is None


def test_a_key_that_is_clearly_used_more_takes_the_slot_of_the_least_used() -> None:
    """More than twice as much; the others stay."""
    slots = LabelSlots[str](2)
    for key in "aab" + 3 * "c":
        slots.use(key)
    assert slots.turn_over(worth=1.0) == {"b"}
    assert slots.held == {"a", "c"}


def test_the_counts_of_many_keys_take_bounded_memory() -> None:
    slots = LabelSlots[int](2)
    for key in range(10_000):
        slots.use(key)
        slots.use(1)
        slots.use(-1)
    assert len(slots._uses) <= 200
    assert slots.turn_over(worth=1.0) == {0}
    assert slots.held == {1, -1}


def test_keys_that_are_used_alike_do_not_take_turns() -> None:
    """Every change of hands makes new time series."""
    slots = LabelSlots[str](1)
    for _ in range(10):
        for key in "abb":
            slots.use(key)
        assert slots.turn_over(worth=0.9) == frozenset()
    assert slots.held == {"a"}


def test_uses_of_long_ago_count_less() -> None:
    """Who was used most last year makes room for who is used now."""
    slots = LabelSlots[str](1)
    for _ in range(100):
        slots.use("old")
    assert slots.turn_over(worth=0.01) == frozenset()
    for _ in range(3):
        slots.use("new")
    assert slots.turn_over(worth=1.0) == {"old"}
    assert slots.held == {"new"}


def test_a_tenth_of_the_slots_changes_hands_at_a_time() -> None:
    """The least used go first, the most used come first."""
    slots = LabelSlots[int](20)
    for key in range(20):
        slots.use(key)
    for key in range(20, 40):
        for _ in range(key):
            slots.use(key)
    assert len(slots.turn_over(worth=1.0)) == 2
    assert slots.held >= {39, 38}
    assert len(slots.held) == 20


@given(max_slots=st.integers(0, 4), steps=st.lists(st.one_of(st.integers(0, 9), st.none()), max_size=100))
def test_no_more_keys_have_slots_than_there_are(max_slots: int, steps: list[int | None]) -> None:
    """For any sequence of uses and changes; a key that loses its slot had one, and has none then."""
    slots = LabelSlots[int](max_slots)
    for step in steps:
        before = slots.held
        if step is None:
            lost = slots.turn_over(worth=0.5)
            assert lost <= before - slots.held
            assert len(slots.held) == len(before)
        else:
            assert slots.use(step) == (step in slots.held)
            assert before <= slots.held
        assert len(slots.held) <= max_slots


def test_tenant_labels_are_bounded_in_number() -> None:
    labels = TenantLabels(max_labels=2)
    assert [labels.of(tenant) for tenant in "abcadb"] == ["a", "b", "_others", "a", "_others", "b"]
    assert set(labels.known) == {"a", "b", "_others"}


def test_callers_without_a_key_share_a_label() -> None:
    """Which no tenant can have as a name."""
    assert TenantLabels().of(None) == "_nobody"


async def routes_of(running: Running) -> set[tuple[str, str]]:
    """Every method and path that has been measured."""
    return {
        (one.labels["method"], one.labels["path"])
        for one in await samples_of(running)
        if one.name == "peltier_route_request_seconds_count"
    }


async def test_a_prediction_and_a_refused_one_are_one_route(running: Running) -> None:
    await running.predict("demo", "good")
    assert await routes_of(running) == {("POST", TEMPLATE)}
    await running.client.post(DEMO, content=b"{", headers={"content-type": "application/json"})
    assert await routes_of(running) == {("POST", TEMPLATE), ("GET", "/metrics")}


async def test_callers_cannot_make_labels(running: Running) -> None:
    """All unknown paths and methods share one label each, and so do requests refused by authentication."""
    for number in range(20):
        await running.client.get(f"/v1/nothing/{number}")
        await running.client.get(f"/v1/adapters/{number}/versions")
        await running.client.request(f"METHOD{number}", f"/{number}")
        await running.client.request(f"METHOD{number}", "/info")
    await running.client.get("/info", headers={"origin": "https://evil.example"})
    assert await routes_of(running) == {
        ("GET", "none"),
        ("GET", "/v1/adapters/{name}/versions"),
        ("other", "none"),
        ("other", "/info"),
    }


class Watched:
    """Metrics of versions on a set clock, and what Prometheus sees of them: pages, and increases between them."""

    def __init__(self, max_versions: int) -> None:
        self.now = 0.0
        self._registry = CollectorRegistry()
        self.metrics = VersionMetrics(self._registry, max_versions, lambda: self.now)
        self.last: Mapping[SeriesKey, float] = {}
        self.increases = Counts[SeriesKey]()

    def scrape(self) -> Mapping[SeriesKey, float]:
        """A page. A series that falls, or was not on the page before, counts from 0, as Prometheus has it."""
        page = self._read()
        for series, value in page.items():
            before = self.last.get(series, 0.0)
            self.increases[series] += int(value - before if value >= before else value)
        self.metrics.turn_over()
        self.last = page
        return page

    def _read(self) -> Mapping[SeriesKey, float]:
        families = text_string_to_metric_families(generate_latest(self._registry).decode())
        samples = [one for family in families for one in family.samples]
        return {
            (VersionLabels(*(one.labels[name] for name in VersionLabels._fields)), one.labels["code"]): one.value
            for one in samples
            if one.name == "peltier_adapter_requests_total"
        }


def version(number: int, adapter: str = "a") -> VersionLabels:
    """Of the default tenant."""
    return VersionLabels("default", adapter, str(number))


USE = st.tuples(st.integers(1, 8), st.sampled_from([200, 500]))
STEPS = st.lists(st.one_of(USE, st.sampled_from([0.0, 30.0, 61.0, 5000.0])), max_size=200)


@given(max_versions=st.integers(0, 3), steps=STEPS)
def test_every_request_is_counted_once_in_a_bounded_number_of_series(max_versions: int, steps: list[object]) -> None:
    """Whatever is asked, and whenever pages are read: the increases of all series together are the requests by status;
    while a series is on the page it never falls, and that of the others is never taken away."""
    watched, asked = Watched(max_versions), Counts[int]()
    for step in steps:
        if isinstance(step, tuple):
            number, code = step
            watched.metrics.observe(version(number), code, 0.01)
            asked[code] += 1
            continue
        watched.now += step
        before = watched.last
        page = watched.scrape()
        # Those that lost their slots in the last two minutes, one at a time, are still there.
        assert len({labels for labels, _ in page} - {OTHER}) <= max_versions + min(max_versions, 2)
        assert all(page[series] >= value for series, value in before.items() if series[0] == OTHER)
    watched.scrape()
    seen = Counts[int]()
    for (_, code), increase in watched.increases.items():
        seen[int(code)] += increase
    assert +seen == +asked


@given(st.lists(st.integers(1, 8), max_size=100))
def test_series_never_fall_while_none_changes_hands(numbers: list[int]) -> None:
    watched = Watched(2)
    for number in numbers:
        watched.metrics.observe(version(number), 200, 0.01)
        watched.now += 0.1
        before = watched.last
        page = watched.scrape()
        assert all(page[series] >= value for series, value in before.items())


def test_what_a_version_has_counted_does_not_come_back_as_requests_of_now() -> None:
    """The series of a version that loses them stay as they are, and end; `other` counts on from where it was, without a
    jump."""
    watched = Watched(1)
    for _ in range(1000):
        watched.metrics.observe(version(1), 500, 0.01)
    watched.scrape()
    watched.now += 100_000
    watched.scrape()  # what was asked a day ago is worth nothing now
    for _ in range(5):
        watched.metrics.observe(version(2), 200, 0.01)
    watched.now += 61
    assert watched.scrape() == {(version(1), "500"): 1000, (OTHER, "200"): 5}
    watched.metrics.observe(version(2), 200, 0.01)
    watched.metrics.observe(version(1), 500, 0.01)
    now = {(version(2), "200"): 1, (OTHER, "200"): 5, (OTHER, "500"): 1}
    assert watched.scrape() == now | {(version(1), "500"): 1000}
    watched.now += 121
    watched.scrape()
    assert watched.scrape() == now


def test_a_scraper_reads_the_last_values_whoever_else_reads_the_page() -> None:
    """A tab and `peltier top` read it every two seconds, the scraper once a minute: every request is counted."""
    watched = Watched(1)
    watched.metrics.observe(version(1), 200, 0.01)
    watched.scrape()
    watched.metrics.observe(version(1), 200, 0.01)
    for _ in range(50):
        watched.metrics.observe(version(2), 200, 0.01)
    for _ in range(10):
        for _ in range(30):
            watched.now += 2
            watched.metrics.turn_over()
        page = watched.scrape()
    assert watched.increases == {(version(1), "200"): 2, (OTHER, "200"): 50}
    assert page == {(OTHER, "200"): 50}


def test_a_version_that_gets_its_series_back_at_once_counts_on() -> None:
    watched = Watched(1)
    for number, times in ((1, 1), (2, 5), (1, 500)):
        for _ in range(times):
            watched.metrics.observe(version(number), 200, 0.01)
        watched.now += 61
        watched.scrape()
    watched.metrics.observe(version(1), 200, 0.01)
    watched.now += 1000
    watched.scrape()
    assert watched.scrape()[version(1), "200"] == 2


def test_another_counter_has_the_slot_of_its_version() -> None:
    """Without a slot it counts for the others, and it ends with the version's other series."""
    registry, now = CollectorRegistry(), [0.0]
    metrics = VersionMetrics(registry, 1, lambda: now[0])

    count = metrics.counter("peltier_adapter_feedback_total", "Feedback", "result")

    def counted() -> dict[str, float]:
        (family,) = (one for one in registry.collect() if one.name == "peltier_adapter_feedback")
        return {one.labels["version"]: one.value for one in family.samples if one.name.endswith("_total")}

    count(version(1), "right")
    for _ in range(5):
        count(version(2), "right")
    assert counted() == {"1": 1, OTHER.version: 5}
    now[0] += 61
    metrics.turn_over()
    count(version(2), "right")
    assert counted() == {"1": 1, "2": 1, OTHER.version: 5}
    now[0] += 121
    metrics.turn_over()
    assert counted() == {"2": 1, OTHER.version: 5}


def test_a_new_version_is_seen_although_all_series_are_taken() -> None:
    """A canary that gets traffic has series of its own after a minute."""
    watched = Watched(10)
    for number in range(10):
        for _ in range(100 if number else 1):
            watched.metrics.observe(version(number), 200, 0.01)
    watched.scrape()
    for _ in range(10):
        watched.metrics.observe(version(99), 200, 0.01)
    watched.now += 61
    watched.scrape()
    watched.metrics.observe(version(99), 200, 0.01)
    assert (version(99), "200") in watched.scrape()


def test_the_page_stays_small_with_ten_thousand_adapters() -> None:
    """Each is asked, and fails in three ways; the page has the series of as many as the setting says."""
    metrics = Metrics(max_versions=100)
    small = len(metrics.exposition("")[0].splitlines())
    for number in range(10_000):
        for code in (200, 424, 503, 504):
            metrics.versions.observe(version(1, f"task-{number:05}"), code, 0.01)
    lines = metrics.exposition("")[0].splitlines()
    # Four counters and a histogram of ten lines, each with its time of creation, and the heads of those times.
    assert len(lines) - small <= 101 * (2 * 4 + 11) + 4
