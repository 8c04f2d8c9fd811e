"""Tenants on the command line."""

import json
from typing import Any

import pytest

from tests.client.typed_commands import Peltier, peltier

__all__ = ["peltier"]


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
        ("tenants", "create", "No Name"),
        ("tenants", "set", "default", "--max-adapters", "many"),
        ("tenants", "set", "default", "--requests-per-second", "0"),
    ],
)
def test_wrong_usage(peltier: Peltier, server: Any, words: tuple[str, ...]) -> None:
    """Is told before anything is sent."""
    assert peltier(*words).status == 2
    assert not server.received
