"""What the pages show to which caller."""

import asyncio
import re
from collections.abc import Callable

import httpx2
import pytest
from fastapi import FastAPI
from peltier_server.app import create_app
from peltier_server.extensions.settings import Settings

from tests.server.conftest import Running, make_client

KEY = "plt_of_the_operator_of_this_server"
HTML = {"accept": "text/html,application/xhtml+xml"}


async def front_pages(app: FastAPI, **headers: str) -> list[tuple[int, str, list[str]]]:
    """The front page as a browser and as a program read it."""
    async with make_client(app) as client:
        answers = [await client.get("/", headers=headers | accept) for accept in (HTML, {})]
    return [(one.status_code, one.text, sorted({*one.headers} - {"x-request-id"})) for one in answers]


@pytest.mark.extension
async def test_the_front_page_tells_everybody_the_same(running: Running, settings_of: Callable[..., Settings]) -> None:
    """Open or with keys, ready or loading, to a stranger and to an admin: so it can tell nothing of the server."""
    closed = create_app(settings_of(admin_key=KEY))
    page, document = await front_pages(running.app)
    assert (page[0], document[0]) == (307, 200)
    assert await front_pages(closed) == [page, document]
    assert await front_pages(closed, authorization=f"Bearer {KEY}") == [page, document]
    assert await front_pages(closed, authorization="Bearer plt_wrong") == [page, document]
    assert not re.search(rf"{re.escape(running.app.version)}|bert|default", page[1] + document[1])


@pytest.mark.extension
async def test_programs_read_the_links_as_json(caller: Running) -> None:
    links = (await caller.client.get("/")).json()
    assert links.pop("name") == "peltier"
    assert links.pop("predict") in caller.app.openapi()["paths"]
    assert (await caller.client.get(links.pop("console"))).headers["location"] == "console/"
    answers = await asyncio.gather(*(caller.client.get(path) for path in links.values()))
    assert {answer.status_code for answer in answers} == {200}


async def test_pages_that_load_from_elsewhere_are_not_there(caller: Running) -> None:
    """Neither the framework's own, nor anything on the one that is served; a browser would refuse it too."""
    assert (await caller.client.get("/redoc")).status_code == 404
    answer: httpx2.Response = await caller.client.get("/docs", headers=HTML)
    assert re.findall(r"""(?:src|href|url)\s*[=:]\s*['"](?:https?:)?//""", answer.text) == []
    assert "default-src 'self'" in answer.headers["content-security-policy"]


@pytest.mark.extension
async def test_openapi_and_its_page_are_there(caller: Running) -> None:
    """With the error responses of every route: also that of a second training of a file, by OpenAI's route too."""
    paths = (await caller.client.get("/openapi.json")).json()["paths"]
    responses = paths["/v1/tasks/{task}/predict"]["post"]["responses"]
    assert {"200", "400", "401", "404", "413", "422", "424", "503", "504"} <= set(responses)
    assert responses["422"]["content"]["application/json"]["schema"]["$ref"].endswith("/ErrorBody")
    assert all("409" in paths[path]["post"]["responses"] for path in ("/v1/trainings", "/v1/fine_tuning/jobs"))
    assert (await caller.client.get("/docs")).status_code == 200


async def test_the_truncation_header_is_described(caller: Running) -> None:
    paths = (await caller.client.get("/openapi.json")).json()["paths"]
    for path in ("/v1/embeddings", "/v1/predict", "/v1/tasks/{task}/predict", "/v1/rerank", "/rerank"):
        assert "x-truncated-inputs" in paths[path]["post"]["responses"]["200"]["headers"]
