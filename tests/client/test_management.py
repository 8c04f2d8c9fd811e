"""What changes which version answers, as it is sent."""

from collections.abc import Callable
from typing import Any

import pytest
from peltier_client import Client, management
from peltier_client.errors import InvalidInput, Unavailable
from peltier_client.exchange import Request


@pytest.mark.parametrize(
    ("request_", "sent"),
    [
        (management.set_alias("a", "live", 3), ("PUT", "/v1/adapters/a/aliases/live", b'{"version":3}')),
        (
            management.set_alias("a", "live", {3: 0.9, 4: 0.1}),
            ("PUT", "/v1/adapters/a/aliases/live", b'{"versions":{"3":0.9,"4":0.1}}'),
        ),
        (management.alias_history("a", "live"), ("GET", "/v1/adapters/a/aliases/live/history", None)),
        (management.rollback_alias("a", "live"), ("POST", "/v1/adapters/a/aliases/live/rollback", None)),
        (management.delete_alias("a", "live"), ("DELETE", "/v1/adapters/a/aliases/live", None)),
        (management.delete("a"), ("DELETE", "/v1/adapters/a", None)),
        (management.delete("a@3"), ("DELETE", "/v1/adapters/a/versions/3", None)),
        (management.undelete("a@3"), ("POST", "/v1/adapters/a/versions/3/undelete", None)),
        (management.deprecate("a@3", "old"), ("POST", "/v1/adapters/a/versions/3/deprecate", b'{"reason":"old"}')),
        (management.deprecate("a@3", None), ("POST", "/v1/adapters/a/versions/3/deprecate", b'{"reason":null}')),
        (management.set_public("a", True), ("PATCH", "/v1/adapters/a", b'{"public":true}')),
    ],
)
def test_what_is_sent(request_: Request[Any], sent: tuple[str, str, bytes | None]) -> None:
    """Method, address and body of the contract."""
    assert (request_.method, request_.path, request_.json) == sent


@pytest.mark.parametrize(
    "build",
    [
        lambda: management.set_alias("a", "12", 3),
        lambda: management.set_alias("a", "live", True),
        lambda: management.set_alias("a", "live", 0),
        lambda: management.set_alias("a", "live", {"x": 1.0}),
        lambda: management.set_alias("a/b", "live", 3),
        lambda: management.rollback_alias("a", "../x"),
        lambda: management.undelete("a"),
        lambda: management.undelete("other:a@3"),
        lambda: management.deprecate("a@live", "old"),
        lambda: management.deprecate("a@3", ""),
        lambda: management.delete("a@live"),
        lambda: management.delete("other:a"),
        lambda: management.delete("../x"),
        lambda: management.delete("a@0"),
        lambda: management.audit("a b"),
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
