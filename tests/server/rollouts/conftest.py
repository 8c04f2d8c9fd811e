"""A server with an adapter that has a guarded change."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from peltier_backbone.backbone import Backbone
from peltier_server.rollouts import rollouts

from tests.server.conftest import Running

TEXTS = [f"a {word} film" for word in ("good", "bad", "gem", "bore", "fine", "dull", "odd", "new", "old", "big")]


@dataclass(frozen=True)
class Shop:
    """A server whose adapter `a` has three versions, of which the alias `production` means the first."""

    running: Running

    async def guard(self, candidate: int = 2, name: str = "a", **guard: object) -> httpx2.Response:
        """Begins a guarded change. It is not decided by which of two equally fast versions is slower by chance."""
        body = {"candidate": candidate, "guard": {"max_slowdown": 1000, **guard}}
        return await self.running.client.put(f"/v1/adapters/{name}/aliases/production", json=body)

    async def ask(self, request_id: str, inputs: object = "a good film", task: str = "a") -> Mapping[str, Any]:
        """The body of a prediction under a request id."""
        headers = {"x-request-id": request_id}
        answer = await self.running.client.post(f"/v1/tasks/{task}/predict", json={"inputs": inputs}, headers=headers)
        assert answer.status_code == 200, answer.text
        body: Mapping[str, Any] = answer.json()
        return body

    async def tell(self, request_id: str, **feedback: object) -> httpx2.Response:
        """Gives feedback."""
        return await self.running.client.post("/v1/feedback", json={"request_id": request_id, **feedback})

    async def state(self) -> Mapping[str, Any]:
        """The alias with its guarded change."""
        found = (await self.running.client.get("/v1/adapters/a/aliases/production")).json()
        state: Mapping[str, Any] = found["rollout"] | {"versions": found["versions"]}
        return state


@pytest.fixture
async def shop(
    running: Running, bert: Backbone, make_artifact: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> Shop:
    """Feedback waits for no other replica."""
    monkeypatch.setattr(rollouts, "_WAIT_SECONDS", 0.0)
    for seed in range(3):
        await running.upload(make_artifact(bert, "bitfit", name="a", seed=seed))
    changed = await running.client.put("/v1/adapters/a/aliases/production", json={"version": 1})
    assert changed.status_code == 200
    return Shop(running)
