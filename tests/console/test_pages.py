"""The pages of adapters, tenants, comparisons, reports and traffic."""

import gzip
import itertools
import json
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import expect

from tests.console.conftest import EXAMPLES
from tests.console.many_adapters import name_of
from tests.console.site import MANY, Site
from tests.console.visitor import Open, wait_until_drawn
from tests.support.chromium import needs_chromium
from tests.training.report.test_page import HOSTILE, create_merging, create_report

pytestmark = [needs_chromium, pytest.mark.slow]
# The most rows that a window and its surroundings need.
MAX_ROWS_IN_DOCUMENT = 80
# To the end, and then until there are more rows, or no more for long.
SCROLL = """async () => {
    const box = document.querySelector("section[aria-label=Adapters]");
    const height = box.scrollHeight;
    box.scrollTop = height;
    for (let frame = 0; frame < 600 && box.scrollHeight === height; frame++) await new Promise(requestAnimationFrame);
}"""


def test_ten_thousand_rows_are_reached_by_scrolling(open_tab: Open, site: Site) -> None:
    """The server sends them page by page as they come into view, and the document holds only those."""
    key, _ = site.create_key(MANY)
    page = open_tab(key).open("/adapters")
    table = page.get_by_role("table", name="Adapters")
    expect(table).to_have_attribute("aria-rowcount", "10001")
    last = page.get_by_role("link", name=name_of(10_000), exact=True)
    while not last.is_visible():
        page.evaluate(SCROLL)
        assert page.locator("tbody tr").count() < MAX_ROWS_IN_DOCUMENT
    expect(last).to_be_visible()


def test_a_search_finds_one_of_ten_thousand(open_tab: Open, site: Site) -> None:
    """On the server, so that all of them are searched."""
    key, _ = site.create_key(MANY)
    page = open_tab(key).open("/adapters")
    page.get_by_label("Search by name").fill("07123")
    expect(page.get_by_role("table", name="Adapters").get_by_role("link")).to_have_text([name_of(7123)])


def test_a_new_key_is_shown_once_and_works_until_it_is_revoked(open_tab: Open, site: Site) -> None:
    """Its text is only in the dialog after its creation."""
    visitor = open_tab()
    page = visitor.open(f"/tenants?tenant={MANY}")
    page.get_by_role("button", name="New key").click()
    page.get_by_label("Note").fill("made in a browser")
    page.get_by_role("button", name="Create key").click()
    key = page.get_by_role("dialog").locator("code").inner_text()
    page.get_by_role("button", name="I have copied it").click()
    row = page.get_by_role("row").filter(has_text="made in a browser")
    expect(row).to_contain_text("valid")
    assert key not in page.content()
    headers = {"authorization": f"Bearer {key}"}
    assert httpx2.get(f"{site.url}/v1/adapters", headers=headers, timeout=60).status_code == 200
    row.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text("revoked")
    assert httpx2.get(f"{site.url}/v1/adapters", headers=headers, timeout=60).status_code == 401


def test_the_audit_log_shows_who_did_it(open_tab: Open, site: Site) -> None:
    _, prefix = site.create_key(MANY)
    page = open_tab().open("/audit")
    expect(page.locator("main")).to_contain_text(prefix)
    page.get_by_label("Action").select_option("publish")
    expect(page.locator("main")).not_to_contain_text(prefix)
    expect(page.locator("main")).to_contain_text("banking77")


ROWS = Path(__file__).parents[2] / "examples" / "data" / "banking77" / "validation.jsonl.gz"


def test_two_versions_are_compared_on_pasted_rows(open_tab: Open, site: Site) -> None:
    """Each one's accuracy as its predictions over HTTP give it, both confusion matrices, and the rows that differ."""
    site.upload((EXAMPLES / "banking77-adamix.safetensors").read_bytes(), "other")
    tasks = ("banking77", "other")
    with gzip.open(ROWS, "rt") as lines:
        rows = [json.loads(line) for line in itertools.islice(lines, 0, 400, 8)]
    pasted = "text\tlabel\n" + "\n".join(f"{row['text']}\t{row['label_text']}" for row in rows)
    page = open_tab().open("/compare?a=banking77@1&b=other@1")
    page.get_by_label("Labelled rows").fill(pasted)
    page.get_by_role("button", name=f"Compare on {len(rows)} rows").click()
    metrics = page.get_by_label("Metrics", exact=True)
    for task in tasks:
        answers = site.client.post(f"/v1/tasks/{task}/predict", json={"inputs": [row["text"] for row in rows]})
        labels = [one["label"] for one in answers.json()["predictions"]]
        hits = sum(label == row["label_text"] for label, row in zip(labels, rows, strict=True))
        expect(metrics.get_by_role("row").filter(has_text="accuracy")).to_contain_text(f"{hits / len(rows):.4f}")
    charts = page.get_by_role("img").filter(has=page.locator("canvas"))
    expect(charts).to_have_count(2)
    wait_until_drawn(charts, 2)


def test_a_row_that_cannot_be_judged_is_named(open_tab: Open) -> None:
    """With its line and the server's reason; the others are judged, and the verdict is that of `peltier compare`."""
    page = open_tab().open("/compare?a=banking77@1&b=banking77@1")
    pasted = "text\tlabel\nI am still waiting on my card?\tcard_arrival\nWhere is my card?\tno such label\n"
    page.get_by_label("Labelled rows").fill(pasted)
    page.get_by_role("button", name="Compare on 2 rows").click()
    left_out = page.get_by_label("Rows that were not judged")
    expect(left_out).to_contain_text("line 3 label 'no such label' is not one of the 77 labels of either version")
    verdict = page.get_by_label("Verdict")
    expect(verdict).to_contain_text("Neither is better: accuracy 1.0000 of both.")
    expect(verdict).to_contain_text("By McNemar's exact test p = 1: it may well be chance. 1 row judged.")


def test_a_report_is_shown_without_asking_the_server(open_tab: Open) -> None:
    """Its curves and its confusion matrix are drawn, and no label of it runs as a script."""
    report = create_report(HOSTILE, merging=create_merging())
    visitor = open_tab()
    page = visitor.open("/reports")
    page.on("dialog", lambda dialog: visitor.said.append(dialog.message))
    before = len(visitor.asked)
    file = {"name": "toy.report.json", "mimeType": "application/json", "buffer": report.model_dump_json().encode()}
    page.get_by_label("Report files").set_input_files(file)
    expect(page.get_by_role("heading", name="toy", level=2)).to_be_visible()
    charts = page.get_by_role("img").filter(has=page.locator("canvas"))
    wait_until_drawn(charts, 2)
    assert all("/console/assets/" in url for url in visitor.asked[before:])


def test_another_file_is_refused_in_a_sentence(open_tab: Open) -> None:
    page = open_tab().open("/reports")
    file = {"name": "other.json", "mimeType": "application/json", "buffer": b'{"a": 1}'}
    page.get_by_label("Report files").set_input_files(file)
    expect(page.get_by_text("other.json")).to_be_visible()
    expect(page.locator("main")).to_contain_text("No report is open")


def test_traffic_is_seen_as_it_happens(open_tab: Open, site: Site) -> None:
    """The adapter that answers is listed among the busiest, and the charts are drawn."""
    page = open_tab().open("/live")
    busiest = page.get_by_role("table", name="Busiest adapters now")
    expect(page.locator("canvas").first).to_be_visible()
    while not busiest.get_by_text("banking77").count():
        site.shares("banking77", 5)
    charts = page.get_by_role("img").filter(has=page.locator("canvas"))
    wait_until_drawn(charts, 2)
