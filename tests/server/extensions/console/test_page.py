"""The console's files, and who may read them."""

import gzip
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from peltier_server.app import create_app
from peltier_server.extensions.console.page import console_router
from peltier_server.extensions.settings import Settings

from tests.server.conftest import make_client

PAGE = b'<!doctype html><script type="module" src="./assets/index-Ab12.js"></script>'
SCRIPT = b"console.log('a script of more than one piece');" * 4000
KEY = "plt_of_the_operator_of_this_server"
HTML = {"accept": "text/html,application/xhtml+xml"}


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A small build."""
    folder = tmp_path / "console"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_bytes(PAGE)
    (folder / "assets" / "index-Ab12.js").write_bytes(SCRIPT)
    return folder


@pytest.fixture
async def visitor(build: Path, settings_of: Callable[..., Settings]) -> AsyncIterator[httpx2.AsyncClient]:
    """A client without a key, of a server with keys and this build."""
    async with make_client(serving(build, settings_of)) as client:
        yield client


def serving(build: Path, settings_of: Callable[..., Settings]) -> FastAPI:
    """A server with keys, whose console is `build`."""
    app = create_app(settings_of(admin_key=KEY))
    others = [route for route in app.router.routes if not getattr(route, "path", "").startswith("/console")]
    app.router.routes[:] = [*others, *console_router(build).routes]
    return app


async def test_a_browser_is_led_to_the_page(visitor: httpx2.AsyncClient) -> None:
    """From the front page and from the address without a slash, by addresses that are right behind a path."""
    for path in ("/", "/console"):
        answer = await visitor.get(path, headers=HTML)
        assert (answer.status_code, answer.headers["location"]) == (307, "console/")
    page = await visitor.get("/console/", headers=HTML)
    assert (page.status_code, page.content) == (200, PAGE)
    assert page.headers["content-type"] == "text/html; charset=utf-8"


async def test_everybody_reads_the_same_files(visitor: httpx2.AsyncClient) -> None:
    """With the operator's key, a wrong one or none: so they tell nothing of the server."""
    asked = [{"authorization": f"Bearer {key}"} for key in (KEY, "plt_wrong")] + [{}]
    for path in ("/console/", "/console/assets/index-Ab12.js"):
        answers = [await visitor.get(path, headers=headers) for headers in asked]
        assert len({(one.status_code, one.content, len(one.headers)) for one in answers}) == 1
        assert answers[0].status_code == 200


async def test_nothing_else_is_open(visitor: httpx2.AsyncClient) -> None:
    """No path that only begins like the console's, and none that leads out of its folder."""
    for path in ("/consoles", "/v1/adapters"):
        assert (await visitor.get(path)).status_code == 401, path
    escapes = (
        "/console%2f..%2fv1/adapters",
        "/console/%2e%2e/app.py",
        "/console/%2fetc/passwd",
    )
    for path in (*escapes, "/console/assets"):
        answer = await visitor.get(httpx2.URL("http://peltier").copy_with(raw_path=path.encode()))
        assert answer.status_code == 404, path
    assert (await visitor.post("/console/")).status_code == 405


async def test_a_browser_keeps_what_its_name_identifies(visitor: httpx2.AsyncClient) -> None:
    """A file with a digest in its name for ever; the page is asked for again and answered by 304."""
    script = await visitor.get("/console/assets/index-Ab12.js")
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    page = await visitor.get("/console/")
    assert page.headers["cache-control"] == "no-cache"
    again = await visitor.get("/console/", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["content-security-policy"] == page.headers["content-security-policy"]


async def test_files_are_compressed_for_those_who_accept_it(visitor: httpx2.AsyncClient) -> None:
    """The same content, in a fraction of its bytes, and each caller's cache keeps the two apart."""
    plain = await visitor.get("/console/assets/index-Ab12.js", headers={"accept-encoding": "identity"})
    assert int(plain.headers["content-length"]) == len(plain.content) == len(SCRIPT)
    packed = await visitor.get("/console/assets/index-Ab12.js", headers={"accept-encoding": "gzip, br"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["content-type"].startswith("text/javascript")
    assert packed.content == SCRIPT
    assert int(packed.headers["content-length"]) == len(gzip.compress(SCRIPT, mtime=0)) < len(SCRIPT) / 10
    assert packed.headers["vary"] == plain.headers["vary"] == "accept-encoding"


@pytest.mark.parametrize(
    ("header", "packed"),
    [
        ("gzip;q=0", False),
        ("gzip;q=0.000, *", False),
        ("br, identity", False),
        ("", False),
        ("*;q=0", False),
        ("deflate, GZIP; q=0.5", True),
        ("*", True),
    ],
)
async def test_a_quality_of_0_refuses_compression(visitor: httpx2.AsyncClient, header: str, packed: bool) -> None:
    """As RFC 9110 says, also where a caller names every coding by a star."""
    answer = await visitor.get("/console/assets/index-Ab12.js", headers={"accept-encoding": header})
    assert ("content-encoding" in answer.headers) is packed
    assert answer.content == SCRIPT


async def test_a_browser_confines_the_page(visitor: httpx2.AsyncClient) -> None:
    """To its own scripts, styles and server; nobody may frame it, guess types or read where a link came from."""
    headers = (await visitor.get("/console/")).headers
    policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
    assert {policy[name] for name in ("default-src", "script-src", "style-src", "connect-src")} == {"'self'"}
    assert {policy[name] for name in ("frame-ancestors", "base-uri", "form-action", "object-src")} == {"'none'"}
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


async def test_a_server_without_a_build_says_how_to_make_one(tmp_path, settings_of):
    """In one sentence, at every address of the console."""
    async with make_client(serving(tmp_path / "none", settings_of)) as client:
        for path in ("/console/", "/console/assets/index-Ab12.js"):
            answer = await client.get(path)
            assert answer.status_code == 404
            assert answer.json()["error"]["message"] == (
                "this server has no console: run `make console` in its sources, and start it again"
            )


async def test_a_new_build_never_mixes_with_the_old_one(build: Path, visitor: httpx2.AsyncClient) -> None:
    """A server serves the files that it read at its start, although others are on the disk now."""
    (build / "index.html").write_bytes(b"<!doctype html>new")
    (build / "assets" / "index-Ab12.js").unlink()
    assert (await visitor.get("/console/")).content == PAGE
    assert (await visitor.get("/console/assets/index-Ab12.js")).content == SCRIPT
