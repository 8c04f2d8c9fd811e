"""Extensions that are left out."""

from collections.abc import Callable

import pytest
from peltier_server.app import EXTENSIONS, create_app
from peltier_server.extensions.settings import Settings
from peltier_server.settings import SettingsError

from tests.server.conftest import Serve, make_client


async def test_the_console_is_left_out(serve: Serve) -> None:
    """Its addresses are unknown ones, and the front page does not lead there. Its neighbours answer."""
    async with serve(without="console") as running:
        for path in ("/console", "/console/index.html", "/v1/compare"):
            answer = await running.client.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        page = await running.client.get("/", headers={"accept": "text/html"})
        assert "console" not in page.json()
        assert (await running.client.get(page.json()["adapters"])).is_success


async def test_pages_that_are_left_out_are_not_open(settings_of: Callable[..., Settings]) -> None:
    """To a caller without a key they are unknown as any other address."""
    app = create_app(settings_of(without="console", admin_key="plt_of_the_operator"))
    async with make_client(app) as client:
        assert (await client.get("/console/")).status_code == 401


def test_an_unknown_extension_cannot_be_left_out(settings_of: Callable[..., Settings]) -> None:
    """The error lists the names."""
    names = ", ".join(one.name for one in EXTENSIONS)
    with pytest.raises(SettingsError) as failure:
        create_app(settings_of(without=" picker ,consul"))
    assert str(failure.value) == f"without names 'consul', which is no extension; there are {names}"


async def test_an_identity_provider_that_is_left_out_is_none(serve: Serve) -> None:
    """Its settings are accepted and do nothing: the server asks for keys, or is open, as it is without them."""
    named = {"oidc_issuer": "https://id.test", "oidc_audience": "peltier", "oidc_jwks_url": "https://id.test/keys"}
    async with serve(without="oidc", **named) as running:
        assert (await running.client.get("/v1/adapters")).status_code == 200
