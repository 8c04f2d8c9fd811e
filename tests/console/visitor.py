"""A tab with the console, and what went wrong in it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import peltier_server
from playwright.sync_api import ConsoleMessage, Locator, Page, expect

# Tests wait for what they expect, on a busy machine too.
_MILLISECONDS = 60_000
expect.set_options(timeout=_MILLISECONDS)
_REFUSED = "Failed to load resource: the server responded with a status of 4"
# Of a copy, because a browser complains of a canvas that is read more than once.
_COLOURS = """canvas => {
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", {willReadFrequently: true});
    copy.drawImage(canvas, 0, 0);
    const {data} = copy.getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
}"""
Theme = Literal["light", "dark"]
Open = Callable[..., "Visitor"]

BUILD = Path(peltier_server.__file__).parent / "console" / "index.html"


class Visitor:
    """A tab of its own, with `key` as if it had been entered; `asked` is every address that it requested, `said` what
    anything in it complained of. What the server refused is in `refused`: a browser complains of it of its own accord.
    Only a first visit begins with the tour.
    """

    def __init__(self, browser, url, key="", theme="light", width=1440, *, is_first_visit=False):
        self.url = url
        self.context = browser.new_context(
            color_scheme=theme, viewport={"width": width, "height": 900}, reduced_motion="reduce"
        )
        self.context.set_default_timeout(_MILLISECONDS)
        self.page: Page = self.context.new_page()
        if not is_first_visit:
            self.page.add_init_script("localStorage.setItem('peltier.tour', 'shown')")
        if key:
            self.page.add_init_script(
                f"sessionStorage.getItem('peltier.key') ?? sessionStorage.setItem('peltier.key', '{key}')"
            )
        self.asked, self.said, self.refused = list[str](), list[str](), list[str]()
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            heard = self.refused if message.text.startswith(_REFUSED) else self.said
            heard.append(f"{message.text} at {self.page.url}")

    def open(self, path: str = "/") -> Page:
        """The page at this address after `#`, once it has its heading and waits for nothing."""
        self.page.goto(f"{self.url}/console/#{path}")
        self.settle()
        return self.page

    def settle(self) -> None:
        """Returns once the page has its heading and shows nothing that is still loading."""
        expect(self.page.locator("h1")).to_be_visible()
        expect(self.page.get_by_role("status").filter(has_text="…")).to_have_count(0)

    @property
    def main(self) -> Locator:
        """The page without the frame around it."""
        return self.page.locator("main")

    def foreign(self) -> list[str]:
        """The requests that went anywhere but to the server."""
        own = (f"{self.url}/", "data:", f"blob:{self.url}/")
        return [url for url in self.asked if not url.startswith(own)]


def num_colours(chart: Locator) -> int:
    """How many colours a drawn chart has, whose layers are canvases. An empty one has one."""
    return max((layer.evaluate(_COLOURS) for layer in chart.locator("canvas").all()), default=1)


def wait_until_drawn(charts: Locator, num: int) -> None:
    """Returns once at least so many of the charts have a curve or a picture."""
    end = time.monotonic() + _MILLISECONDS / 1000
    while (drawn := sum(num_colours(chart) > 2 for chart in charts.all())) < num:
        assert time.monotonic() < end, f"{drawn} charts are drawn"
        charts.page.wait_for_timeout(100)
