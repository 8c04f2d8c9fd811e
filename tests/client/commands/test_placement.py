"""Pins and placements on the command line."""

import json
from typing import Any

from tests.client.typed_commands import Peltier, peltier

__all__ = ["peltier"]

REASON = "on the device: loaded 12 s ago from the store; next to be evicted when room is needed"
VERSION = {
    "version": 3,
    "share": 1.0,
    "tier": "device",
    "pinned": False,
    "since": "2026-11-21T00:00:00Z",
    "last_used_at": "2026-11-21T00:00:05Z",
    "in_use": 0,
    "reason": REASON,
}
PIN = {"tier": "host", "pinned_at": "2026-11-21T00:00:00Z", "pinned_by": "key:abcdefgh"}
PLACEMENT: dict[str, Any] = {"name": "sst2", "replica": "here:1", "pin": None, "versions": [VERSION]}


def test_a_pin_is_made_and_released(peltier: Peltier, server: Any, answer: Any) -> None:
    """With the tier that is asked for; another tier is wrong usage."""
    server.planned.append(answer(200, {**PLACEMENT, "pin": PIN}))
    assert (
        "sst2 is pinned to the host tier by key:abcdefgh at 2026-11-2" in peltier("pin", "sst2", "--tier", "host").out
    )
    sent = server.received[-1]
    assert (sent.method, sent.path, json.loads(sent.body)) == ("PUT", "/v1/adapters/sst2/pin", {"tier": "host"})
    server.planned.append(answer(204))
    assert peltier("unpin", "sst2").out == "unpinned sst2\n"
    assert peltier("pin", "sst2", "--tier", "store").status == 2


def test_a_placement_is_explained_for_each_replica(peltier: Peltier, server: Any, answer: Any) -> None:
    """One that does not answer is named on stderr, and the others are shown."""
    server.planned.append(answer(200, PLACEMENT))
    shown = peltier("explain", "placement", "sst2", "--replica", "http://127.0.0.1:9")
    assert "sst2 is not pinned; on replica here:1:" in shown.out
    assert f"version 3 (1 of the requests for the name): {REASON}; last used at 2026-11-2" in shown.out
    assert "http://127.0.0.1:9 does not answer" in shown.err
    server.planned.append(answer(200, PLACEMENT))
    document = json.loads(peltier("explain", "placement", "sst2", "--json").out)
    assert document["replicas"][0]["versions"][0]["reason"] == REASON
