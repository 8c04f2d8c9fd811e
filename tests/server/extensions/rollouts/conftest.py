"""A server with an adapter that has a guarded change."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from peltier_backbone.backbone import Backbone
from peltier_server.extensions.rollouts import rollouts
from peltier_server.extensions.rollouts.rollouts import Rollouts

from tests.server.conftest import Running

TEXTS = [f"a {word} film" for word in ("good", "bad", "gem", "bore", "fine", "dull", "odd", "new", "old", "big")]


@dataclass(frozen=True)
class Shop:
    """A server whose adapter `a` has three versions, of which the alias `production` means the first."""

    running: Running

    @property
    def rollouts(self) -> Rollouts:
        """The guarded changes of the server."""
        return self.running.app.state.started[Rollouts]

    async def guard(self, candidate: int = 2, name: str = "a", **guard: object) -> httpx2.Response:
        """Begins a guarded change."""
        body = {"candidate": candidate, "guard": guard}
        return await self.running.client.put(f"/v1/adapters/{name}/aliases/production", json=body)

    async def ask(self, request_id: str, inputs: object = "a good film", task: str = "a") -> Mapping[str, Any]:
        """The body of a prediction under a request id."""
        headers = {"x-request-id": request_id}
        answer = await self.running.client.post(f"/v1/tasks/{task}/predict", json={"inputs": inputs}, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def tell(self, request_id: str, **feedback: object) -> httpx2.Response:
        """Gives feedback."""
        return await self.running.client.post("/v1/feedback", json={"request_id": request_id, **feedback})

    async def settled(self, request_id: str) -> None:
        """Returns once the shadow of a request is computed or dropped."""
        await self.running.run(self.rollouts.recorder.settle(self.running.tenant, request_id))

    async def state(self) -> Mapping[str, Any]:
        """The alias with its guarded change."""
        found = (await self.running.client.get("/v1/adapters/a/aliases/production")).json()
        return found["rollout"] | {"versions": found["versions"]}


@pytest.fixture(autouse=True)
def _feedback_waits_for_no_other_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """All answers are those of one server."""
    monkeypatch.setattr(rollouts, "_WAIT_SECONDS", 0.0)


@pytest.fixture
async def shop(caller: Running, three: list[bytes]) -> Shop:
    """A shop of a new tenant."""
    return await open_shop(caller, three)


@pytest.fixture
async def own_shop(running: Running, three: list[bytes]) -> Shop:
    """A shop on a server of the test, which may have replicas."""
    return await open_shop(running, three)


@pytest.fixture
def three(bert: Backbone, make_artifact: Callable[..., bytes]) -> list[bytes]:
    """The versions of the adapter."""
    return [make_artifact(bert, "bitfit", name="a", seed=seed) for seed in range(3)]


async def open_shop(running: Running, three: list[bytes]) -> Shop:
    """The shop with these versions."""
    await running.publish("a", *three)
    changed = await running.client.put("/v1/adapters/a/aliases/production", json={"version": 1})
    assert changed.status_code == 200
    return Shop(running)
