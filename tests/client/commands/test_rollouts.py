"""Guarded changes and feedback: what the client sends, and what the commands print."""

import json
from typing import Any

import pytest
from peltier_client import AnswerNotFound, Client
from peltier_client.errors import UnexpectedAnswer

ROLLOUT: dict[str, Any] = {
    "id": "rol_1",
    "alias": "live",
    "incumbent": 1,
    "candidate": 2,
    "share": 0.1,
    "guard": {"alpha": 0.05},
    "state": "running",
    "started_at": "2026-11-21T00:00:00Z",
    "started_by": "ada",
    "ends_at": "2026-11-24T00:00:00Z",
    "counts": {"accuracy": {"wins": 3, "losses": 1}},
    "evidence": {"accuracy": 0.8, "promotion": 2.5},
    "needed": {"accuracy": 40.0, "promotion": 20.0},
}
ALIAS = {"alias": "live", "versions": {"1": 0.9, "2": 0.1}, "created_at": "2026-11-21T00:00:00Z", "created_by": "ada"}
FEEDBACK = {
    "request_id": "r",
    "row": 2,
    "adapter": "sst2",
    "version": 2,
    "right": False,
    "counted": True,
    "state": "running",
    "input_hash": "0f",
}


def test_the_client_reads_them(server, answer) -> None:
    """A rollout, none, feedback to a prediction by its request id, and an answer that nobody recorded."""
    with Client(server.url) as client:
        server.planned.append(answer(200, {**ALIAS, "rollout": ROLLOUT}))
        assert client.start_rollout("sst2", "live", 2, share=0.1).needed["promotion"] == 20
        server.planned += [answer(200, ALIAS), answer(200, ALIAS)]
        assert client.rollout("sst2", "live") is None
        with pytest.raises(UnexpectedAnswer, match="is it an older server"):
            client.stop_rollout("sst2", "live")
        server.planned.append(answer(200, FEEDBACK))
        assert client.feedback("r", row=2, label="positive").right is False
        server.planned.append(answer(404, {"error": {"code": "answer_not_found", "message": "no answer"}}))
        with pytest.raises(AnswerNotFound):
            client.feedback("r", right=True)


def test_rollouts_on_the_command_line(peltier, server, answer) -> None:
    """Its state for people and for machines."""
    server.planned.append(answer(200, {**ALIAS, "rollout": ROLLOUT}))
    shown = peltier("rollout", "start", "sst2", "live", "2", "--share", "0.1", "--at-end", "promote").out
    assert shown.splitlines()[0] == "sst2@live: version 2 gets 10% of the requests beside version 1; running"
    assert "  promotion     evidence        2.5   needed 20" in shown
    assert "  accuracy      3 wins, 1 losses" in shown
    assert json.loads(server.received[-1].body)["guard"] == {"share": 0.1, "at_end": "promote"}
    ended = ROLLOUT | {"share": None, "state": "rolled_back", "reason": "it is [worse]"}
    server.planned += [answer(200, {**ALIAS, "rollout": ended}), answer(200, ALIAS), answer(200, ALIAS)]
    shown = peltier("rollout", "stop", "sst2", "live").out
    assert shown.startswith("sst2@live: version 2 shadows version 1; rolled_back\nit is [worse]\n")
    assert "peltier rollout start sst2 live VERSION" in peltier("rollout", "show", "sst2", "live").out
    assert json.loads(peltier("rollout", "show", "sst2", "live", "--json").out) == {"rollout": None}
    assert "--share or --shadow" in peltier("rollout", "start", "sst2", "live", "2").err


def test_feedback_on_the_command_line(peltier, server, answer) -> None:
    """A label, several, or a verdict."""
    server.planned += [answer(200, FEEDBACK), answer(200, FEEDBACK | {"counted": False})]
    assert peltier("feedback", "r", "--label", "a", "--row", "2").out == "the answer of sst2@2 was wrong\n"
    assert json.loads(server.received[-1].body) == {"request_id": "r", "row": 2, "label": "a"}
    told = peltier("feedback", "r", "--wrong").out
    assert told == "the answer of sst2@2 was wrong; the guarded change has ended\n"
    assert json.loads(server.received[-1].body) == {"request_id": "r", "right": False}
    assert "give either --label" in peltier("feedback", "r").err
