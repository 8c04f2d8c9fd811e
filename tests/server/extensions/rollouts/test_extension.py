"""A server without guarded changes."""

from typing import Any

import pytest

from tests.server.conftest import Serve, until
from tests.server.extensions.rollouts.conftest import TEXTS, open_shop

ALIAS = "/v1/adapters/a/aliases/production"


async def test_a_server_without_rollouts_decides_none(
    serve: Serve, three: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """It says so at its start if one is in progress, whose shares it keeps. Aliases and splits change as ever, and a
    change ends the rollout."""
    async with serve() as running:
        assert (await (await open_shop(running, three)).guard(share=0.5)).status_code == 200
    async with serve(without="rollouts") as running:
        client = running.client
        await until(lambda: "guarded changes in progress: 1, such as that of default:a@production" in caplog.text)
        found: dict[str, Any] = (await client.get(ALIAS)).json()
        assert (found["versions"], "rollout" in found) == ({"1": 0.5, "2": 0.5}, False)
        answers = [(await running.predict("a", text)).json()["adapter"]["version"] for text in TEXTS * 3]
        assert set(answers) == {1, 2}
        for path, body in (("/v1/feedback", {"request_id": "r", "right": True}), (f"{ALIAS}/stop", None)):
            assert (await client.post(path, json=body)).status_code == 404
        candidate = {"candidate": 3, "guard": {"share": 0.5}}
        assert (await client.put(ALIAS, json=candidate)).status_code == 422
        split = {"versions": {"1": 0.5, "3": 0.5}}
        assert (await client.put(ALIAS, json=split)).json()["versions"] == split["versions"]
        assert "peltier_rollouts_total" not in (await client.get("/metrics")).text
    async with serve() as running:
        rollout = (await running.client.get(ALIAS)).json()["rollout"]
        assert (rollout["state"], rollout["reason"]) == ("stopped", "the alias was changed by local")
