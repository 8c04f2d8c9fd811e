"""Requests about aliases."""

from collections.abc import Callable
from typing import Any

import pytest
from peltier_client import Client
from peltier_client.errors import InvalidInput, Unavailable
from peltier_client.exchange.request import Request
from peltier_client.resources import aliases


@pytest.mark.parametrize(
    ("request_", "sent"),
    [
        (aliases.set_alias("a", "live", 3), ("PUT", "/v1/adapters/a/aliases/live", b'{"version":3}')),
        (
            aliases.set_alias("a", "live", {3: 0.9, 4: 0.1}),
            ("PUT", "/v1/adapters/a/aliases/live", b'{"versions":{"3":0.9,"4":0.1}}'),
        ),
        (aliases.alias_history("a", "live"), ("GET", "/v1/adapters/a/aliases/live/history", None)),
        (aliases.rollback_alias("a", "live"), ("POST", "/v1/adapters/a/aliases/live/rollback", None)),
        (aliases.delete_alias("a", "live"), ("DELETE", "/v1/adapters/a/aliases/live", None)),
    ],
)
def test_what_is_sent(request_: Request[Any], sent: tuple[str, str, bytes | None]) -> None:
    """Method, address and body of the contract."""
    assert (request_.method, request_.path, request_.json) == sent


@pytest.mark.parametrize(
    "build",
    [
        lambda: aliases.set_alias("a", "12", 3),
        lambda: aliases.set_alias("a", "live", True),
        lambda: aliases.set_alias("a", "live", 0),
        lambda: aliases.set_alias("a", "live", {"x": 1.0}),
        lambda: aliases.set_alias("a/b", "live", 3),
        lambda: aliases.rollback_alias("a", "../x"),
    ],
)
def test_refused_before_sending(build: Callable[[], object]) -> None:
    """A mistake is one sentence, and nothing leaves its place in the address."""
    with pytest.raises(InvalidInput):
        build()


def test_a_rollback_is_sent_once(refuse: Callable[..., Any], server: Any) -> None:
    """A second one would go one more step back, and the first may have been done."""
    server.planned.append(refuse(503, "unavailable"))
    with Client(server.url) as client, pytest.raises(Unavailable):
        client.rollback_alias("sst2", "live")
    assert len(server.received) == 1
