"""Keys and tenants from the client."""

import json
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from peltier_client import AsyncClient, Client, InvalidInput, NotFound
from peltier_client.errors import UnexpectedAnswer
from peltier_client.protocol.administration import RateUsage
from peltier_client.resources import administration

KEY_TEXT = f"plt_abcdefgh_{'x' * 43}"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (
            administration.create_key({"predict"}, {"tenant": "a", "note": "n"}),
            ("POST", "/v1/keys", {"tenant": "a", "scopes": ["predict"], "note": "n"}),
        ),
        (administration.revoke_key("a/b"), ("DELETE", "/v1/keys/a%2Fb", None)),
        (
            administration.create_tenant("a", {"max_adapters": 3}),
            ("POST", "/v1/tenants", {"name": "a", "quotas": {"max_adapters": 3}}),
        ),
        (
            administration.set_tenant("a", {"tokens_per_second": 0.5, "weight": 2}),
            ("PUT", "/v1/tenants/a", {"tokens_per_second": 0.5, "weight": 2.0}),
        ),
    ],
)
def test_what_is_sent(request_: Any, expected: tuple[str, str, object]) -> None:
    """Method, path and body, without what is the default."""
    body = None if request_.json is None else json.loads(request_.json)
    assert (request_.method, request_.path, body) == expected


def test_what_cannot_be_is_not_sent() -> None:
    """The rules of the protocol hold on this side too."""
    for make in (
        lambda: administration.create_key([], {}),
        lambda: administration.create_key(["root"], {}),
        lambda: administration.create_key(["predict"], {"expires_at": datetime(2099, 1, 1)}),
        lambda: administration.create_tenant("No Name", {}),
        lambda: administration.set_tenant("a", {"requests_per_second": 0}),
        lambda: administration.list_keys("No Name"),
    ):
        with pytest.raises(InvalidInput):
            make()


def test_keys_and_tenants(server: Any) -> None:
    """Each call with its typed answer; a key is in no repr."""
    with Client(server.url) as client:
        made = client.create_key("predict", "publish", tenant="default", note="n")
        assert (made.key, made.prefix, made.note) == (KEY_TEXT, "abcdefgh", "n")
        assert KEY_TEXT not in repr(made)
        assert [key.revoked_at is None for key in client.keys("default")] == [True, False]
        client.revoke_key("abcdefgh")
        with pytest.raises(NotFound):
            client.revoke_key("zzzzzzzz")
        assert client.create_tenant("b", max_adapters=3).quotas.max_adapters == 3
        assert [tenant.name for tenant in client.tenants()] == ["default", "other"]
        assert client.tenant("default").quotas.max_concurrent_requests == 8
        assert client.tenant_usage("default").tokens == RateUsage(used=3, limit=50, seconds=10)
        assert client.set_tenant("default", weight=2).quotas.max_concurrent_requests is None


async def test_keys_and_tenants_asynchronously(server: Any) -> None:
    """The same, awaited."""
    async with AsyncClient(server.url) as client:
        assert (await client.create_key("predict")).key == KEY_TEXT
        assert len(await client.keys()) == 2
        await client.revoke_key("abcdefgh")
        assert (await client.create_tenant("b")).name == "b"
        assert (await client.tenant("default")) == (await client.tenants())[0]
        assert (await client.tenant_usage("default")).requests is None
        assert (await client.set_tenant("default", weight=2)).quotas.weight == 2


def test_a_tenant_that_cannot_be_is_not_sent() -> None:
    """A mistake is one sentence."""
    with pytest.raises(InvalidInput):
        administration.read_audit("a b", {})


def test_a_time_without_a_zone_is_not_sent() -> None:
    """The server could only guess."""
    with pytest.raises(InvalidInput, match=r"since is 2026-11-21T00:00:00, which has no time zone"):
        administration.read_audit(None, {"since": datetime(2026, 11, 21)})
    at = datetime(2026, 11, 21, tzinfo=UTC)
    assert administration.read_audit("acme", {"since": at, "actor": None, "action": "publish"}).query == {
        "tenant": "acme",
        "since": "2026-11-21T00:00:00+00:00",
        "action": "publish",
        "limit": 100,
    }


def test_an_unexpected_answer_says_why() -> None:
    """The message names the type and the first thing wrong."""
    response = httpx2.Response(200, json={"status": "fine"})
    with pytest.raises(UnexpectedAnswer, match="not the expected HealthResponse: status: input should be 'ok'"):
        administration.health().read(response)
