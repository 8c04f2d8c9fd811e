"""What every page promises: it opens without a complaint, from this server alone, for everybody, on a phone too."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.console.visitor import Open, Theme
from tests.support.chromium import needs_chromium

pytestmark = [needs_chromium, pytest.mark.slow]
PAGES = (
    "/adapters",
    "/adapters/banking77",
    "/trainings",
    "/upload",
    "/playground",
    "/compare",
    "/live",
    "/tenants",
    "/audit",
    "/reports",
)
# Axe calls faults minor, moderate, serious or critical.
GRAVE = frozenset({"serious", "critical"})


def test_the_list_of_pages_is_complete(open_tab: Open) -> None:
    """The navigation leads to no page that is missing here."""
    visitor = open_tab()
    links = visitor.open("/adapters").get_by_role("navigation", name="Pages").get_by_role("link").all()
    assert {str(link.get_attribute("href")).removeprefix("#") for link in links} <= set(PAGES)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(open_tab: Open, theme: Theme) -> None:
    visitor, axe, found = open_tab(theme=theme), Axe(), list[str]()
    for path in PAGES:
        page = visitor.open(path)
        for fault in axe.run(page).response["violations"]:
            if fault["impact"] in GRAVE:
                nodes = [f"{node['html']}: {node['failureSummary']}" for node in fault["nodes"][:3]]
                found.append(f"{path}: {fault['id']}: {' | '.join(nodes)}")
    assert found == []


def test_a_phone_shows_every_page_without_scrolling_sideways(open_tab: Open) -> None:
    """Wide tables scroll within themselves, and so do the links to pages, of which the current one is in view."""
    visitor, wide = open_tab(width=390), list[str]()
    for path in PAGES:
        page = visitor.open(path)
        expect(page.locator("nav [aria-current=page]").first).to_be_in_viewport(ratio=0.95)
        if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            wide.append(path)
    assert wide == []


def test_a_phone_shows_that_a_table_has_more_columns(open_tab: Open) -> None:
    """Its end fades until the last column is in view, and the name of a row stays."""
    page = open_tab(width=390).open("/adapters")
    table = page.get_by_role("region", name="Adapters")
    expect(table).to_have_attribute("data-more", "end")
    table.evaluate("box => box.scrollTo(box.scrollWidth, 0)")
    expect(table).to_have_attribute("data-more", "start")
    expect(page.get_by_role("columnheader", name="Newest")).to_be_in_viewport(ratio=0.95)
    expect(page.get_by_role("link", name="banking77", exact=True)).to_be_in_viewport(ratio=0.95)


def test_an_unknown_page_leads_back(open_tab: Open) -> None:
    visitor = open_tab()
    visitor.page.goto(f"{visitor.url}/console/#/nowhere")
    expect(visitor.main).to_contain_text("There is no such page")
