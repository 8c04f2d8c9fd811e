"""Reports of trainings, opened from files."""

import pytest
from playwright.sync_api import expect

from tests.console.visitor import Open, wait_until_drawn
from tests.support.chromium import needs_chromium
from tests.training.report.test_page import HOSTILE, create_merging, create_report

pytestmark = [needs_chromium, pytest.mark.slow]


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
