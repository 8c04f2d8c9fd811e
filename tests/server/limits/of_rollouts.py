"""Bounds of guarded changes and feedback."""

from unittest.mock import patch

import httpx2
from peltier_server.extensions.rollouts import recorder, rollouts
from peltier_server.extensions.rollouts.rollouts import Rollouts

from tests.server.limits.probe import Met, probe
from tests.server.limits.servers import TEXT, Servers, Small

_RECORDER = "peltier_server.extensions.rollouts.recorder"


def _guard(servers: Servers, **guard: object) -> httpx2.Response:
    body = {"candidate": 2, "guard": {"share": 0.5, **guard}}
    return servers.bert.client.put("/v1/adapters/demo/aliases/live", json=body)


def _tell(small: Small, request_id: str, **feedback: object) -> httpx2.Response:
    return small.client.post("/v1/feedback", json={"request_id": request_id, **(feedback or {"right": True})})


def _shadowed(servers, see, inputs=(TEXT,), **settings):
    """What is seen of a server of which a guarded change has answered three requests, r0, r1 and r2, one by one."""
    with servers.start("bert", **settings) as small, patch.object(rollouts, "_WAIT_SECONDS", 0.0):
        small.upload(servers.make_artifact(servers.backbones["bert"], "bitfit", seed=3)).raise_for_status()
        small.client.put("/v1/adapters/demo/aliases/live", json={"version": 1}).raise_for_status()
        guard = {"candidate": 2, "guard": {"shadow": True}}
        small.client.put("/v1/adapters/demo/aliases/live", json=guard).raise_for_status()
        for number in range(3):
            headers = {"x-request-id": f"r{number}"}
            body = {"inputs": inputs}
            small.client.post("/v1/tasks/demo@live/predict", json=body, headers=headers).raise_for_status()
            small.run(small.listening.app.state.started[Rollouts].recorder.settle("default", f"r{number}"))
            # Takes what is recorded to the registry.
            small.client.get("/v1/adapters/demo/aliases/live").raise_for_status()
        return see(small)


def _dropped(small: Small) -> Met:
    counts = small.client.get("/v1/adapters/demo/aliases/live").json()["rollout"]["counts"]
    return "the candidate does not answer it" if counts["candidate"] == {"dropped": 3} else str(counts)


probe("hours of a guarded change", "peltier_client.protocol.rollouts.MAX_ROLLOUT_HOURS")(
    lambda servers: _guard(servers, max_hours=2161)
)
probe("labels of a feedback", "peltier_client.protocol.rollouts.MAX_FEEDBACK_LABELS")(
    lambda servers: _tell(servers.bert, "r", label=["a"] * 4097)
)
probe("characters of a label of a feedback", "peltier_client.protocol.rollouts.MAX_FEEDBACK_CHARS")(
    lambda servers: _tell(servers.bert, "r", label="a" * 65_537)
)


@probe("answers of a tenant that wait for feedback")
def _(servers: Servers) -> Met:
    def see(small: Small) -> Met:
        assert _tell(small, "r2", label="positive").is_success
        return _tell(small, "r1", label="positive")

    return _shadowed(servers, see, max_recorded_answers=1)


probe("time in which feedback to an answer is accepted")(
    lambda servers: _shadowed(servers, lambda small: _tell(small, "r0", label="positive"), feedback_seconds=1e-6)
)


@probe("answers that a replica records in a second", f"{_RECORDER}.MAX_BUFFERED_ANSWERS")
def _(servers: Servers) -> Met:
    with patch.object(recorder, "MAX_BUFFERED_ANSWERS", 0):
        return _shadowed(servers, lambda small: _tell(small, "r0", label="positive"))


@probe("answers outside of guarded changes that a replica records in a second")
def _(servers: Servers) -> Met:
    with servers.start("bert", recorded_answers_per_second=1) as small, patch.object(rollouts, "_WAIT_SECONDS", 0.0):
        body, headers = {"inputs": [TEXT, TEXT]}, {"x-request-id": "r"}
        small.client.post("/v1/tasks/demo/predict", json=body, headers=headers).raise_for_status()
        assert _tell(small, "r").is_success
        return _tell(small, "r", row=1, right=True)


@probe("requests that a shadowing candidate answers at once", f"{_RECORDER}.MAX_SHADOWS")
def _(servers: Servers) -> Met:
    with patch.object(recorder, "MAX_SHADOWS", 0):
        return _shadowed(servers, _dropped)


probe("rows of a request that a shadowing candidate answers", f"{_RECORDER}.MAX_SHADOW_ROWS")(
    lambda servers: _shadowed(servers, _dropped, [TEXT] * 33, max_inputs=64, max_queue_tokens=10_000)
)


@probe("time that a shadowing candidate may take", f"{_RECORDER}.MAX_SHADOW_SECONDS")
def _(servers: Servers) -> Met:
    with patch.object(recorder, "MAX_SHADOW_SECONDS", 0.0):
        return _shadowed(servers, _dropped)
