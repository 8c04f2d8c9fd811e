"""Pins on the command line."""

import json
from typing import Any

from tests.client.typed_commands import Peltier, peltier

__all__ = ["peltier"]

PIN = {"pinned_at": "2026-11-21T00:00:00Z", "pinned_by": "key:abcdefgh"}


def test_a_pin_is_made_and_released(peltier: Peltier, server: Any, answer: Any) -> None:
    """The answer says by whom and when it was made."""
    server.planned.append(answer(200, PIN))
    assert "sst2 is pinned by key:abcdefgh at 2026-11-2" in peltier("pin", "sst2").out
    sent = server.received[-1]
    assert (sent.method, sent.path, json.loads(sent.body)) == ("PUT", "/v1/adapters/sst2/pin", {})
    server.planned.append(answer(204))
    assert peltier("unpin", "sst2").out == "unpinned sst2\n"
