from peltier_server.metrics.merged import merge_pages
from peltier_server.metrics.metrics import Metrics
from prometheus_client.parser import text_string_to_metric_families


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
