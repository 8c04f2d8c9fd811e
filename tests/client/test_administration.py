"""Keys and tenants from the client and the command line."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from peltier_client import AsyncClient, Client, InvalidInput, NotFound, administration

from tests.client.conftest import KEY
from tests.client.test_cli import Peltier, peltier

__all__ = ["peltier"]

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
        lambda: administration.keys("No Name"),
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
        assert client.set_tenant("default", weight=2).quotas.max_concurrent_requests is None


async def test_keys_and_tenants_asynchronously(server: Any) -> None:
    """The same, awaited."""
    async with AsyncClient(server.url) as client:
        assert (await client.create_key("predict")).key == KEY_TEXT
        assert len(await client.keys()) == 2
        await client.revoke_key("abcdefgh")
        assert (await client.create_tenant("b")).name == "b"
        assert (await client.tenant("default")) == (await client.tenants())[0]
        assert (await client.set_tenant("default", weight=2)).quotas.weight == 2


def test_a_new_key_is_alone_on_stdout(peltier: Peltier, server: Any) -> None:
    """For `PELTIER_API_KEY=$(peltier keys create …)`; what it opens is on stderr."""
    outcome = peltier(
        "keys", "create", "--scope", "publish", "--scope", "predict", "--expires-in", "90d", "--note", "ci"
    )
    assert outcome.out == f"{KEY_TEXT}\n"
    assert "key abcdefgh of tenant default (predict, publish); it is not shown again" in outcome.err
    sent = json.loads(server.received[0].body)
    left = datetime.fromisoformat(sent["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=89) < left <= timedelta(days=90)


def test_keys_for_people_and_machines(peltier: Peltier, server: Any) -> None:
    """A table, or one document; notes are text."""
    shown = peltier("keys", "list").out
    assert "abcdefgh" in shown
    assert "of [ada]" in shown
    assert "revoked 2026" in shown
    assert json.loads(peltier("keys", "list", "--json").out)["keys"][0]["prefix"] == KEY["prefix"]
    assert peltier("keys", "revoke", "abcdefgh").out == "revoked abcdefgh\n"
    assert peltier("keys", "revoke", "zzzzzzzz").status == 1
    assert json.loads(peltier("keys", "create", "--scope", "admin", "--json").out)["key"] == KEY_TEXT
    assert peltier("keys", "create", "--scope", "metrics").status == 0
    assert json.loads(server.received[-1].body)["scopes"] == ["metrics"]


def test_tenants_for_people_and_machines(peltier: Peltier, server: Any) -> None:
    """`set` changes what is given and keeps the rest."""
    assert "1,048,576" in peltier("tenants", "list").out
    assert json.loads(peltier("tenants", "create", "b", "--max-adapters", "3", "--json").out)["name"] == "b"
    outcome = peltier("tenants", "set", "default", "--max-concurrent-requests", "none", "--weight", "2.5")
    assert outcome.status == 0, outcome.err
    assert json.loads(server.received[-1].body) == {
        "requests_per_second": 5.0,
        "max_stored_bytes": 1048576,
        "weight": 2.5,
    }


@pytest.mark.parametrize(
    "words",
    [
        ("keys", "create"),
        ("keys", "create", "--scope", "root"),
        ("keys", "create", "--scope", "predict", "--expires-in", "tomorrow"),
        ("keys", "create", "--scope", "predict", "--tenant", "No Name"),
        ("tenants", "create", "No Name"),
        ("tenants", "set", "default", "--max-adapters", "many"),
        ("tenants", "set", "default", "--requests-per-second", "0"),
    ],
)
def test_wrong_usage(peltier: Peltier, server: Any, words: tuple[str, ...]) -> None:
    """Is told before anything is sent."""
    assert peltier(*words).status == 2
    assert not server.received
