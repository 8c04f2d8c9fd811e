"""Every route is closed by default."""

from collections.abc import Callable, Iterator

import httpx2
import pytest
from fastapi import FastAPI
from peltier_server.app import create_app
from peltier_server.auth import OPEN_PATHS
from peltier_server.settings import Settings

KEY = "plt_the-right-key"


@pytest.fixture
def app(settings_of: Callable[..., Settings]) -> FastAPI:
    """An app with an admin key; it need not be loaded to turn strangers away."""
    return create_app(settings_of(admin_key=KEY))


@pytest.fixture
async def client(app: FastAPI) -> Iterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://peltier") as opened:
        yield opened


def every_call(app: FastAPI) -> list[tuple[str, str]]:
    """Method and path of every route, also of those that OpenAPI does not show."""
    shown = [(method, path) for path, item in app.openapi()["paths"].items() for method in item]
    hidden = [("get", route.path) for route in app.routes if hasattr(route, "path")]
    return [*shown, *hidden]


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer plt_wrong"}, {"authorization": f"Basic {KEY}"}])
async def test_no_route_answers_a_stranger(app: FastAPI, client: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    """Without the key every call but the two probes is a 401 of the contract's shape."""
    calls = every_call(app)
    assert len(calls) >= 18
    for method, path in calls:
        if path in OPEN_PATHS:
            continue
        answer = await client.request(method, path, headers=headers)
        assert answer.status_code == 401, (method, path)
        assert answer.json()["error"]["code"] == "unauthorized"
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_the_probes_are_open(client: httpx2.AsyncClient) -> None:
    """Orchestrators have no keys."""
    assert (await client.get("/health")).status_code == 200
    assert (await client.get("/ready")).json()["error"]["code"] == "not_ready"


async def test_a_stranger_learns_nothing_from_broken_or_large_bodies(client: httpx2.AsyncClient) -> None:
    """The key is asked for before a body is read, parsed or measured."""
    for body in (b"{", b"x" * 10_000_000):
        answer = await client.post("/v1/tasks/a/predict", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 401


async def test_unknown_addresses_are_closed_too(client: httpx2.AsyncClient) -> None:
    """A stranger cannot tell which addresses exist."""
    assert (await client.get("/v1/nothing")).status_code == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_the_key_opens(client: httpx2.AsyncClient, scheme: str) -> None:
    """The scheme's name has no case."""
    answer = await client.get("/openapi.json", headers={"authorization": f"{scheme} {KEY}"})
    assert answer.status_code == 200


async def test_a_key_that_is_not_ascii_is_a_wrong_key(client: httpx2.AsyncClient) -> None:
    """And not a 500."""
    answer = await client.get("/info", headers={b"authorization": "Bearer schlüssel".encode()})
    assert answer.status_code == 401
