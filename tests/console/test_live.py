"""What the server does now."""

import pytest
from playwright.sync_api import expect

from tests.console.site import Site
from tests.console.visitor import Open, wait_until_drawn
from tests.support.chromium import needs_chromium

pytestmark = [needs_chromium, pytest.mark.slow]


def test_traffic_is_seen_as_it_happens(open_tab: Open, site: Site) -> None:
    """The adapter that answers is listed among the busiest, and the charts are drawn."""
    page = open_tab().open("/live")
    busiest = page.get_by_role("table", name="Busiest adapters now")
    expect(page.locator("canvas").first).to_be_visible()
    while not busiest.get_by_text("banking77").count():
        site.shares("banking77", 5)
    charts = page.get_by_role("img").filter(has=page.locator("canvas"))
    wait_until_drawn(charts, 2)
