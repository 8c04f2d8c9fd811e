"""The pages in a real browser."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page

from docs.pictures.chromium import chromium
from tests.server.conftest import Listen, Listening
from tests.support.chromium import needs_chromium

pytestmark = needs_chromium
# A name that is not the machine's own, as on a server for others: pages behave otherwise on localhost.
NAME = "--host-resolver-rules=MAP peltier.example 127.0.0.1"
KEY = "plt_of_the_operator_of_this_server"


@pytest.fixture(scope="module")
def site(listen: Listen) -> Iterator[Listening]:
    with listen(admin_key=KEY) as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(NAME) as started:
        yield started


class Visitor:
    """A page of a browser that holds the key; `asked` is what it requested, `said` what anything on it complained."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.origin = f"http://peltier.example:{urlsplit(url).port}"
        self.page: Page = browser.new_context(extra_http_headers={"authorization": f"Bearer {KEY}"}).new_page()
        self.asked, self.said = list[str](), list[str]()
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))


@pytest.fixture
def visitor(browser: Browser, site: Listening) -> Visitor:
    return Visitor(browser, site.url)


@pytest.mark.slow
def test_docs_show_every_call_and_ask_nobody_else(visitor: Visitor, site: Listening) -> None:
    """Rendered by Swagger UI from this server alone, also an opened call, at a name that is not localhost."""
    page = visitor.page
    page.goto(f"{visitor.origin}/docs")
    page.wait_for_selector(".opblock")
    calls = [method for path in site.app.openapi()["paths"].values() for method in path]
    assert page.locator(".opblock").count() == len(calls) > 20
    page.get_by_text("/v1/tasks/{task}/predict", exact=False).first.click()
    page.wait_for_selector(".opblock-body .responses-table")
    page.wait_for_load_state("networkidle")
    assert all(url.startswith(f"{visitor.origin}/") for url in visitor.asked), visitor.asked
    assert len(visitor.asked) == 4
    assert visitor.said == []
