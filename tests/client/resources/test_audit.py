from datetime import UTC, datetime

import pytest
from peltier_client.errors import InvalidInput
from peltier_client.resources import audit


def test_a_tenant_that_cannot_be_is_not_sent() -> None:
    """A mistake is one sentence."""
    with pytest.raises(InvalidInput):
        audit.read_audit("a b", {})


def test_a_time_without_a_zone_is_not_sent() -> None:
    """The server could only guess."""
    with pytest.raises(InvalidInput, match=r"since is 2026-11-21T00:00:00, which has no time zone"):
        audit.read_audit(None, {"since": datetime(2026, 11, 21)})
    at = datetime(2026, 11, 21, tzinfo=UTC)
    assert audit.read_audit("acme", {"since": at, "actor": None, "action": "publish"}).query == {
        "tenant": "acme",
        "since": "2026-11-21T00:00:00+00:00",
        "action": "publish",
        "limit": 100,
    }
