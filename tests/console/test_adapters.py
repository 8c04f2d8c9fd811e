"""The table of all adapters."""

import pytest
from playwright.sync_api import expect

from tests.console.many_adapters import name_of
from tests.console.site import MANY, Site
from tests.console.visitor import Open
from tests.support.chromium import needs_chromium

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
