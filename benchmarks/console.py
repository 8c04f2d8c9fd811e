"""What the console costs: its first paint and its bytes, and what tabs that show Live cost the server.

    .venv/bin/python benchmarks/console.py [--rounds 7] [--tabs 5] [--seconds 60]

It needs the console (`make console`) and `chromium` (Debian: apt-get install chromium). Each round opens the console
over loopback in a browser with an empty cache. The browser reports the time from the navigation to the first paint of
content, and how many bytes it received for the page, scripts and styles. The rows of the table follow when the server
has answered. Then the tabs show Live for some seconds. The CPU time of the server's process in these seconds, less
that of as many seconds before, is given as a share of one core.
"""

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from common.chromium import chromium
from common.harness import create_parser
from common.serving import Server, serving
from playwright.sync_api import Browser, Page

EXAMPLES = Path(__file__).parents[1] / "examples" / "adapters"
# Of the console itself, without the server's answers.
_MEASURE = """() => {
    const entries = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
    const files = entries.filter(entry => new URL(entry.name).pathname.includes("/console/"));
    const sum = key => files.reduce((total, entry) => total + entry[key], 0);
    return {
        paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
        files: files.length, packed: sum("encodedBodySize"), plain: sum("decodedBodySize"),
    };
}"""


@dataclass(frozen=True)
class Opened:
    """Milliseconds from the navigation, and bytes."""

    paint: float
    rows: float
    files: int
    packed: int
    plain: int


def first_visit(browser: Browser, url: str) -> Opened:
    """Opens the console with an empty cache."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{url}/console/")
    page.get_by_text("banking77").first.wait_for()
    rows = page.evaluate("performance.now()")
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
    opened = Opened(rows=rows, **page.evaluate(_MEASURE))
    context.close()
    return opened


def open_live(browser: Browser, url: str) -> Page:
    """A tab that shows Live."""
    page = browser.new_page()
    page.goto(f"{url}/console/#/live")
    page.locator("h1").wait_for()
    page.locator("canvas").first.wait_for()
    return page


def measure(browser: Browser, server: Server, rounds: int, num_tabs: int, seconds: float) -> None:
    """Prints the figures of one server."""
    opened = [first_visit(browser, server.url) for _ in range(rounds)]
    paints = [one.paint for one in opened]
    print(f"first paint          {statistics.median(paints):6.0f} ms (most: {max(paints):.0f})")
    print(f"rows of the table    {statistics.median(one.rows for one in opened):6.0f} ms")
    one = opened[0]
    print(f"bytes, gzip          {one.packed / 1000:6.0f} kB in {one.files} files, {one.plain / 1000:.0f} kB unpacked")
    idle = server.core_share(seconds)
    tabs = [open_live(browser, server.url) for _ in range(num_tabs)]
    time.sleep(2)
    print(f"server, idle         {idle:6.2%} of a core")
    print(f"server, {len(tabs)} tabs       {server.core_share(seconds) - idle:6.2%} of a core more")


def main() -> None:
    """Starts a server and a browser."""
    options = create_parser(__doc__, rounds=7, tabs=5, seconds=60.0).parse_args()
    with serving("--publish", str(EXAMPLES)) as server, chromium() as browser:
        measure(browser, server, options.rounds, options.tabs, options.seconds)


if __name__ == "__main__":
    main()
