"""The tour of a first visit."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.console.test_every_page import GRAVE
from tests.console.visitor import Open, Theme
from tests.support.chromium import needs_chromium

pytestmark = [needs_chromium, pytest.mark.slow]
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
