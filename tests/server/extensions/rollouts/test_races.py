"""Callers change one adapter at the same moment."""

import asyncio
import random

import httpx2
import pytest

from tests.server.conftest import Serve
from tests.server.extensions.rollouts.conftest import Shop

ALIAS = "/v1/adapters/a/aliases/production"
CHANGES: tuple[tuple[str, str, object], ...] = (
    *[("PUT", ALIAS, {"version": 1})] * 3,
    ("PUT", ALIAS, {"versions": {"1": 0.5, "3": 0.5}}),
    *[("PUT", ALIAS, {"candidate": 2, "guard": {"share": 0.5}})] * 3,
    ("PUT", ALIAS, {"candidate": 3, "guard": {"shadow": True, "max_hours": 1e-7, "at_end": "promote"}}),
    ("POST", f"{ALIAS}/stop", None),
    ("POST", f"{ALIAS}/rollback", None),
    ("DELETE", ALIAS, None),
    ("GET", ALIAS, None),
    ("GET", f"{ALIAS}/history", None),
    ("DELETE", "/v1/adapters/a/versions/2", None),
    ("POST", "/v1/adapters/a/versions/2/undelete", None),
    ("POST", "/v1/adapters/a/versions/3/deprecate", {"reason": "old"}),
    ("GET", "/v1/adapters/a/aliases", None),
    ("PATCH", "/v1/adapters/a", {"public": True}),
    ("PUT", "/v1/adapters/a/pin", {}),
    ("DELETE", "/v1/adapters/a/pin", None),
    ("POST", "/v1/tasks/a/predict", {"inputs": "a good film"}),
    ("POST", "/v1/feedback", {"request_id": "r", "right": True}),
    ("DELETE", "/v1/adapters/a", None),
    ("GET", "/v1/adapters/a", None),
)


@pytest.mark.slow
async def test_no_change_beside_another_is_a_failure_of_the_server(serve: Serve, own_shop: Shop) -> None:
    """Each is made or refused at both replicas, whatever others have done meanwhile to the alias, its guarded change,
    its versions and the adapter; a caller who is refused learns why."""
    draw = random.Random(0)
    async with serve() as other, asyncio.TaskGroup() as group:
        for client in [own_shop.running.client, other.client] * 4:
            group.create_task(_change(client, draw))


async def _change(client: httpx2.AsyncClient, draw: random.Random) -> None:
    for method, path, body in draw.choices(CHANGES, k=40):
        answer = await client.request(method, path, json=body, headers={"x-request-id": "r"})
        assert answer.status_code < 500, (method, path, body, answer.text)
        if answer.status_code >= 400:
            assert answer.json()["error"]["message"]
        if (method, path) == ("DELETE", "/v1/adapters/a"):
            for number in (1, 2, 3):
                await client.post(f"/v1/adapters/a/versions/{number}/undelete")
