"""What every page promises, for everybody, on a phone too, from this server alone; and the tour of a first visit."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

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


STEPS = ("Adapters", "Upload", "Live", "Playground")


def focused(page: Page) -> str:
    """What the control with the focus says."""
    return str(page.evaluate("document.activeElement.innerText"))


def test_a_keyboard_goes_through_the_tour(open_tab: Open) -> None:
    """Four steps; each after the first shows its page. At the end the page has the focus again."""
    page = open_tab(is_first_visit=True).open("/adapters")
    for number, title in enumerate(STEPS, start=1):
        tour = page.get_by_role("dialog", name=title)
        expect(tour).to_contain_text(f"Step {number} of 4")
        expect(page.get_by_role("heading", name=title, level=1)).to_be_visible()
        assert focused(page) == ("Done" if number == len(STEPS) else "Next")
        page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.evaluate("document.activeElement === document.body")


def test_the_tour_is_shown_once(open_tab: Open) -> None:
    """Escape ends it, and it is not shown again; the palette can show it."""
    visitor = open_tab(is_first_visit=True)
    page = visitor.open("/audit")
    expect(page.get_by_role("dialog", name="Adapters")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.reload()
    visitor.settle()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.keyboard.type("tour")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Adapters")).to_be_visible()


def test_a_visitor_without_a_key_sees_no_tour(open_tab: Open) -> None:
    """The pages would be empty."""
    page = open_tab("", is_first_visit=True, is_refused=True).open("/adapters")
    expect(page.get_by_role("alert").first).to_contain_text("key")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing_serious_in_the_tour(open_tab: Open, theme: Theme, width: int) -> None:
    page = open_tab(theme=theme, width=width, is_first_visit=True).open("/adapters")
    expect(page.get_by_role("dialog", name="Adapters")).to_be_in_viewport(ratio=1)
    faults = Axe().run(page).response["violations"]
    assert [fault["id"] for fault in faults if fault["impact"] in GRAVE] == []
