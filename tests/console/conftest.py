"""One server with real adapters for all tests of the console, and a browser for each file.

A file's tests begin and end the browser, because Playwright keeps an event loop running in the thread of the tests.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser

from docs.pictures.chromium import CHROMIUM, chromium
from tests.console.many_adapters import fill
from tests.console.site import ADMIN, MANY, Site
from tests.console.visitor import BUILD, Open, Visitor
from tests.support.server_process import Server

EXAMPLES = Path(__file__).parents[2] / "examples" / "adapters"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """MiniLM with keys and the example adapters, and a tenant that has ten thousand."""
    if not BUILD.exists():
        pytest.skip("the console is not built: run make console")
    folder = tmp_path_factory.mktemp("console")
    examples = {name: (EXAMPLES / f"{name}.safetensors").read_bytes() for name in ("banking77", "clinc150")}
    (folder / "store").mkdir()
    asyncio.run(fill(folder / "store", MANY, 10_000, examples["banking77"]))
    flags = ("--backbone", "minilm", "--store", str(folder / "store"))
    server = Server(folder / "log", *flags, PELTIER_ADMIN_KEY=ADMIN)
    try:
        url = server.wait_until_ready().url
        with httpx2.Client(base_url=url, headers={"authorization": f"Bearer {ADMIN}"}, timeout=60) as client:
            started = Site(url, client, folder / "store")
            for artifact in examples.values():
                started.upload(artifact)
            yield started
    finally:
        server.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    if CHROMIUM is None:
        pytest.skip("Debian's package chromium is not installed")
    with chromium() as started:
        yield started


@pytest.fixture
def open_tab(browser: Browser, site: Site) -> Iterator[Open]:
    """`open_tab(key=…, theme=…, width=…)`: a visitor, who by default is the operator. Whatever the test does, no tab
    may complain or ask another server. Where the server refuses a request, the test says so (`is_refused`).
    """
    opened, refused = list[Visitor](), list[Visitor]()

    def start(key: str = ADMIN, *, is_refused: bool = False, **options: Any) -> Visitor:
        opened.append(Visitor(browser, site.url, key, **options))
        if is_refused:
            refused.append(opened[-1])
        return opened[-1]

    yield start
    for visitor in opened:
        visitor.context.close()
    assert [said for visitor in opened for said in visitor.said] == []
    assert [url for visitor in opened for url in visitor.foreign()] == []
    assert [visitor.refused for visitor in opened if visitor.refused and visitor not in refused] == []
