"""Series of adapter versions: bounded in number, with correct rates."""

from collections import Counter as Counts
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from peltier_server.metrics.metrics import Metrics
from peltier_server.metrics.version_metrics import OTHER, VersionLabels, VersionMetrics
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

Series = tuple[VersionLabels, str]


class Watched:
    """Metrics of versions on a set clock, and what Prometheus sees of them: pages, and increases between them."""

    def __init__(self, max_versions: int) -> None:
        self.now = 0.0
        self._registry = CollectorRegistry()
        self.metrics = VersionMetrics(self._registry, max_versions, lambda: self.now)
        self.last: Mapping[Series, float] = {}
        self.increases = Counts[Series]()

    def scrape(self) -> Mapping[Series, float]:
        """A page. A series that falls, or was not on the page before, counts from 0, as Prometheus has it."""
        page = self._read()
        for series, value in page.items():
            before = self.last.get(series, 0.0)
            self.increases[series] += int(value - before if value >= before else value)
        self.metrics.turn_over()
        self.last = page
        return page

    def _read(self) -> Mapping[Series, float]:
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
        assert len({labels for labels, _ in page} - {OTHER}) <= max_versions
        assert all(page[series] >= value for series, value in before.items() if series[0] == OTHER)
    watched.scrape()
    seen = Counts[int]()
    for (_, code), increase in watched.increases.items():
        seen[int(code)] += increase
    assert +seen == +asked


@given(st.lists(st.integers(1, 8), max_size=100))
def test_series_never_fall_while_none_changes_hands(numbers: list[int]) -> None:
    """Between two pages within a minute no series falls or ends."""
    watched = Watched(2)
    for number in numbers:
        watched.metrics.observe(version(number), 200, 0.01)
        watched.now += 0.1
        before = watched.last
        page = watched.scrape()
        assert all(page[series] >= value for series, value in before.items())


def test_what_a_version_has_counted_does_not_come_back_as_requests_of_now() -> None:
    """A version that loses its series ends them; `other` counts on from where it was, without a jump."""
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
    assert watched.scrape() == {(version(2), "200"): 1, (OTHER, "200"): 5, (OTHER, "500"): 1}


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
