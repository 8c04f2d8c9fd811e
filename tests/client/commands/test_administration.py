"""Keys and tenants on the command line."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.client.conftest import KEY

KEY_TEXT = f"plt_abcdefgh_{'x' * 43}"


def test_a_new_key_is_alone_on_stdout(peltier, server) -> None:
    """For `PELTIER_API_KEY=$(peltier keys create …)`; what it opens is on stderr."""
    outcome = peltier(
        "keys", "create", "--scope", "publish", "--scope", "predict", "--expires-in", "90d", "--note", "ci"
    )
    assert outcome.out == f"{KEY_TEXT}\n"
    assert "key abcdefgh of tenant default (predict, publish); it is not shown again" in outcome.err
    sent = json.loads(server.received[0].body)
    left = datetime.fromisoformat(sent["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=89) < left <= timedelta(days=90)


def test_keys_for_people_and_machines(peltier, server) -> None:
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
def test_wrong_usage(peltier, server, words: tuple[str, ...]) -> None:
    """Is told before anything is sent."""
    assert peltier(*words).status == 2
    assert not server.received


def test_tenants_for_people_and_machines(peltier, server) -> None:
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
