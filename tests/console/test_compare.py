"""Two versions on the same labelled rows."""

import gzip
import itertools
import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.conftest import EXAMPLES
from tests.console.site import Site
from tests.console.visitor import Open, wait_until_drawn
from tests.support.chromium import needs_chromium

pytestmark = [needs_chromium, pytest.mark.slow]
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
