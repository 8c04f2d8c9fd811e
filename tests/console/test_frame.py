"""What surrounds every page: the way in, the key, the palette, the theme."""

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.sync_api import Browser, Route, expect

from tests.console.site import ADMIN, Site
from tests.console.visitor import Open, Visitor
from tests.support.chromium import needs_chromium
from tests.support.server_process import Server

pytestmark = [needs_chromium, pytest.mark.slow]
PROXY = """
defaults
    mode http
    timeout client 60s
    timeout server 60s
    timeout connect 10s
frontend front
    bind fd@{socket}
    http-request replace-path /models(/.*) \\1
    default_backend peltier
backend peltier
    server one {server}
"""
_KEY_SECONDS = 12
WRONG = "plt_wrongkey_" + "0" * 43


def test_the_address_of_the_server_shows_the_console(open_tab: Open, site: Site) -> None:
    visitor = open_tab()
    visitor.page.goto(site.url)
    visitor.settle()
    assert visitor.page.url == f"{site.url}/console/#/adapters"
    expect(visitor.page.get_by_role("heading", name="Adapters", level=1)).to_be_visible()


def test_a_link_to_a_page_survives_a_reload(open_tab: Open) -> None:
    visitor = open_tab()
    page = visitor.open("/playground")
    title = page.locator("h1").inner_text()
    page.reload()
    expect(page.locator("h1")).to_have_text(title)


def test_a_server_with_keys_asks_for_one(open_tab: Open) -> None:
    """The page opens without a key and says what to do. The key stays in the tab and is not in the address."""
    visitor = open_tab("", is_refused=True)
    page = visitor.open("/adapters")
    expect(page.get_by_role("alert").first).to_contain_text("key")
    page.get_by_role("button", name="Enter key").first.click()
    page.locator("input[type=password]").fill(ADMIN)
    page.keyboard.press("Enter")
    expect(visitor.main).to_contain_text("banking77")
    kept = page.evaluate("[Object.values(sessionStorage), Object.values(localStorage), document.cookie, location.href]")
    assert kept[0] == [ADMIN]
    assert not any(ADMIN in str(one) for one in kept[1:])


def test_a_server_without_keys_says_that_none_is_needed(browser: Browser, tmp_path: Path) -> None:
    server = Server(tmp_path / "log", "--backbone", "minilm", "--store", str(tmp_path / "store"))
    try:
        visitor = Visitor(browser, server.wait_until_ready().url)
        page = visitor.open("/adapters")
        page.get_by_role("button", name="No key needed").click()
        expect(page.get_by_role("dialog", name="API key")).to_contain_text("needs none")
        assert (visitor.said, visitor.refused) == ([], [])
        visitor.context.close()
    finally:
        server.end()


def test_a_wrong_key_is_refused(open_tab: Open, site: Site) -> None:
    """With the server's sentence; another key helps at once."""
    visitor = open_tab(WRONG, is_refused=True)
    page = visitor.open("/adapters")
    answer = httpx2.get(f"{site.url}/v1/adapters", headers={"authorization": f"Bearer {WRONG}"}, timeout=60)
    expect(page.get_by_role("alert").first).to_contain_text(answer.json()["error"]["message"], ignore_case=True)
    page.get_by_role("button", name="Enter another key").first.click()
    page.locator("input[type=password]").fill(ADMIN)
    page.keyboard.press("Enter")
    expect(visitor.main).to_contain_text("banking77")
    expect(page.get_by_role("button", name="Enter another key")).to_have_count(0)


def test_a_revoked_key_is_noticed(open_tab: Open, site: Site) -> None:
    """The next request says that it was revoked, and the page asks for another one."""
    key, prefix = site.create_key()
    visitor = open_tab(key, is_refused=True)
    page = visitor.open("/adapters")
    expect(visitor.main).to_contain_text("banking77")
    site.client.delete(f"/v1/keys/{prefix}").raise_for_status()
    page.reload()
    expect(page.get_by_role("alert").first).to_contain_text("revoked")
    expect(page.get_by_role("button", name="Enter another key").first).to_be_visible()


def test_an_expired_key_is_noticed(open_tab: Open, site: Site) -> None:
    """Without a click: the list of trainings asks the server again by itself."""
    ends = datetime.now(UTC) + timedelta(seconds=_KEY_SECONDS)
    body = {"tenant": "default", "scopes": ["predict", "train"], "expires_at": ends.isoformat()}
    key = site.client.post("/v1/keys", json=body).raise_for_status().json()["key"]
    visitor = open_tab(key, is_refused=True)
    page = visitor.open("/trainings")
    expect(page.get_by_role("alert").first).to_contain_text("expired")
    expect(page.get_by_role("button", name="Enter another key").first).to_be_visible()


def test_the_keyboard_reaches_every_page(open_tab: Open) -> None:
    """The palette opens by Ctrl-K and finds pages and adapters by a few letters."""
    visitor = open_tab()
    page = visitor.open("/adapters")
    for typed, address in (("tenants", "#/tenants"), ("clinc", "#/adapters/clinc150")):
        page.keyboard.press("Control+k")
        expect(page.get_by_role("combobox")).to_be_focused()
        page.keyboard.type(typed)
        expect(page.get_by_role("option").first).to_contain_text(re.compile(typed, re.IGNORECASE))
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/{address}")
    page.keyboard.press("Control+k")
    page.keyboard.press("Escape")
    expect(page.get_by_role("combobox")).to_have_count(0)


def test_the_theme_is_the_systems_until_the_visitor_chooses(open_tab: Open) -> None:
    visitor = open_tab(theme="dark")
    page = visitor.open("/adapters")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")


def test_the_bar_is_shown_before_the_scripts_have_run(open_tab: Open) -> None:
    """In the visitor's theme, and the console takes its place."""
    visitor, held = open_tab(theme="dark"), list[Route]()
    page = visitor.page
    page.route("**/assets/*.js", lambda route: held.append(route))
    page.goto(f"{visitor.url}/console/", wait_until="commit")
    expect(page.get_by_role("banner")).to_have_text("Peltier")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    for route in held:
        route.continue_()
    page.unroute("**/assets/*.js")
    visitor.settle()
    expect(page.get_by_role("banner")).to_contain_text("Playground")


@pytest.fixture
def behind_a_path(site: Site, tmp_path: Path) -> Iterator[str]:
    """The address of a real proxy that serves the site under /models."""
    if (haproxy := shutil.which("haproxy")) is None:
        pytest.skip("haproxy is not installed")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = tmp_path / "haproxy.cfg"
        config.write_text(PROXY.format(socket=listener.fileno(), server=urlsplit(site.url).netloc))
        command = [haproxy, "-q", "-f", str(config)]
        process = subprocess.Popen(command, pass_fds=[listener.fileno()], stderr=subprocess.DEVNULL)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/models"
        process.kill()
        process.wait()


def test_the_console_works_behind_a_path(browser: Browser, behind_a_path: str) -> None:
    """Also the way to it from the front page, and every request of it."""
    visitor = Visitor(browser, behind_a_path, ADMIN)
    visitor.page.goto(f"{behind_a_path}/")
    visitor.settle()
    assert visitor.page.url == f"{behind_a_path}/console/#/adapters"
    expect(visitor.main).to_contain_text("banking77")
    assert visitor.foreign() == visitor.said == []
    visitor.context.close()
