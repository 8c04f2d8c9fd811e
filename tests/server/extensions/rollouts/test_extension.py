"""A server without guarded changes."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from peltier_store.registry.errors import RegistryError
from peltier_store.registry.extensions.rollout_records import AnswerUnknown, Retention
from peltier_store.registry.extensions.rollouts import RolloutRegistry

from tests.server.conftest import Running, until
from tests.server.extensions.rollouts.conftest import TEXTS, open_shop

ALIAS = "/v1/adapters/a/aliases/production"


async def test_a_server_without_rollouts_decides_none(serve, three, caplog):
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


async def test_a_server_that_cannot_tell_whether_some_are_in_progress_says_so(serve, monkeypatch, caplog):

    async def fail(_: RolloutRegistry) -> None:
        raise RegistryError("the registry 'x' failed: no route to it")

    monkeypatch.setattr(RolloutRegistry, "running", fail)
    async with serve(without="rollouts"):
        await until(lambda: "whether guarded changes are in progress is unknown: the registry 'x'" in caplog.text)


@pytest.mark.parametrize("left_out", ["", "rollouts"])
async def test_recorded_answers_are_forgotten_by_any_server(serve, three, monkeypatch, left_out):
    """Though nobody asks it, and though it would record none itself: the rows go with their hashes."""
    async with serve(recorded_answers_per_second=3) as running:
        await (await open_shop(running, three)).ask("r")
    monkeypatch.setattr("peltier_server.catalog.purge._MIN_PAUSE_SECONDS", 0.05)

    async def is_kept(running: Running) -> bool:
        try:
            registry = running.service.store.registry.rollouts
            await registry.answer(running.tenant, "r", 0, Retention(timedelta(days=1), 10))
        except AnswerUnknown:
            return False
        return True

    async with serve(without=left_out) as running:
        assert await is_kept(running)
    async with serve(without=left_out, feedback_seconds=0.01) as running, asyncio.timeout(30):
        while await is_kept(running):  # noqa: ASYNC110 - there is no event for a purge
            await asyncio.sleep(0.05)
