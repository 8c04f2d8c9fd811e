"""Aliases over HTTP."""

import asyncio
import json
from collections.abc import Callable

import httpx2
import pytest
from peltier_backbone.backbone import Backbone

from tests.server.conftest import Running, hold, until


@pytest.fixture
async def shelf(caller: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> Running:
    """Adapter `a` in three versions, of which the second is deleted, and `b` in one."""
    *three, other = (make_artifact(bert, "bitfit", name="any", seed=seed) for seed in range(4))
    await caller.publish("a", *three)
    await caller.publish("b", other)
    assert (await caller.client.delete("/v1/adapters/a/versions/2")).status_code == 204
    return caller


async def put(running: Running, alias: str, body: object, name: str = "a") -> httpx2.Response:
    # By hand, because the client refuses to write NaN.
    content, headers = json.dumps(body), {"content-type": "application/json"}
    return await running.client.put(f"/v1/adapters/{name}/aliases/{alias}", content=content, headers=headers)


async def answering(running: Running, task: str, request_id: str = "1") -> int:
    """The version that answers, which body and headers agree on."""
    headers = {"x-request-id": request_id}
    answer = await running.client.post(f"/v1/tasks/{task}/predict", json={"inputs": "bad"}, headers=headers)
    assert answer.status_code == 200, answer.text
    version: int = answer.json()["adapter"]["version"]
    assert answer.headers["x-adapter-version"] == str(version)
    return version


async def test_an_alias_names_a_version(shelf: Running) -> None:
    """From the next request on; `production` also answers for the bare name."""
    changed = (await put(shelf, "production", {"version": 1})).json()
    assert (changed["alias"], changed["versions"], changed["created_by"]) == ("production", {"1": 1.0}, shelf.actor)
    assert await answering(shelf, "a@production") == await answering(shelf, "a") == 1
    assert await answering(shelf, "a@3") == 3
    assert (await put(shelf, "production", {"version": 3})).status_code == 200
    assert await answering(shelf, "a") == 3
    adapter = (await shelf.client.get("/v1/adapters/a")).json()
    assert (adapter["aliases"], adapter["live"]) == ({"production": {"3": 1.0}}, {"3": 1.0})


async def test_a_split_is_sticky_by_request_id(shelf: Running) -> None:
    """The same id gets the same version, alone and in a mixed request; many ids get both."""
    assert (await put(shelf, "ab", {"versions": {"1": 0.5, "3": 0.5}})).status_code == 200
    first = [await answering(shelf, "a@ab", str(number)) for number in range(12)]
    assert [await answering(shelf, "a@ab", str(number)) for number in range(12)] == first
    assert set(first) == {1, 3}
    items = [{"task": task, "input": "bad"} for task in ("a@ab", "b", "a@ab")]
    mixed = await shelf.client.post("/v1/predict", json={"requests": items}, headers={"x-request-id": "5"})
    assert [one["adapter"]["version"] for one in mixed.json()["results"]] == [first[5], 1, first[5]]


async def test_a_flip_is_seen_by_all_or_by_none(shelf: Running) -> None:
    """While an alias goes to and fro no request misses it, and each is answered whole by one version."""
    await put(shelf, "live", {"version": 1})

    async def flip() -> None:
        for number in range(20):
            assert (await put(shelf, "live", {"version": (3, 1)[number % 2]})).status_code == 200

    async def ask() -> set[int]:
        return {await answering(shelf, "a@live") for _ in range(40)}

    _, *seen = await asyncio.gather(flip(), ask(), ask())
    assert set.union(*seen) <= {1, 3}


async def test_a_prediction_keeps_the_version_that_it_began_with(shelf: Running) -> None:
    """Also if its alias moves before it is computed."""
    await put(shelf, "live", {"version": 1})
    async with hold(shelf):
        waiting = asyncio.ensure_future(answering(shelf, "a@live"))
        await until(lambda: shelf.service.batcher.queued_tokens)
        await put(shelf, "live", {"version": 3})
    assert await waiting == 1
    assert await answering(shelf, "a@live") == 3


async def test_the_history_of_an_alias(shelf: Running) -> None:
    """Every change, newest first, rollbacks and deletions among them; 404 for an alias that never was."""
    history = "/v1/adapters/a/aliases/live/history"
    assert (await shelf.client.get(history)).json()["error"]["code"] == "version_not_found"
    await put(shelf, "live", {"version": 1})
    await put(shelf, "live", {"versions": {"1": 0.9, "3": 0.1}})
    await shelf.client.post("/v1/adapters/a/aliases/live/rollback")
    await shelf.client.delete("/v1/adapters/a/aliases/live")
    changes = (await shelf.client.get(history)).json()["changes"]
    assert [change["versions"] for change in changes] == [{}, {"1": 1.0}, {"1": 0.9, "3": 0.1}, {"1": 1.0}]
    assert {change["created_by"] for change in changes} == {shelf.actor}


async def test_a_deleted_alias_means_nothing_until_it_is_rolled_back(shelf: Running) -> None:
    """Without `production` a bare name is the newest version again."""
    await put(shelf, "production", {"version": 1})
    assert (await shelf.client.delete("/v1/adapters/a/aliases/production")).status_code == 204
    assert (await shelf.client.delete("/v1/adapters/a/aliases/production")).status_code == 404
    assert (await shelf.predict("a@production", "bad")).json()["error"]["code"] == "version_not_found"
    assert await answering(shelf, "a") == 3
    assert (await shelf.client.get("/v1/adapters/a/aliases")).json() == {"aliases": []}
    await shelf.client.post("/v1/adapters/a/aliases/production/rollback")
    assert await answering(shelf, "a") == 1


async def test_a_version_in_use_by_an_alias_is_not_deleted(shelf: Running) -> None:
    """The conflict names the alias; the whole adapter may go, and its aliases with it."""
    await put(shelf, "live", {"version": 1})
    refused = await shelf.client.delete("/v1/adapters/a/versions/1")
    assert refused.status_code == 409
    assert "in use by its alias 'live'" in refused.json()["error"]["message"]
    assert await answering(shelf, "a@live") == 1
    assert (await shelf.client.delete("/v1/adapters/a")).status_code == 204


async def test_every_fault_of_a_split_is_named(shelf: Running) -> None:
    """Unknown and deleted versions, shares that are no shares, and a sum that is not 1."""
    nan = float("nan")
    answer = await put(shelf, "x", {"versions": {"1": nan, "2": -1, "9": 0.5}})
    assert answer.status_code == 422
    assert answer.json()["error"]["details"] == [
        "version 1 has the share nan: it must be a number above 0",
        "version 2 has the share -1.0: it must be a number above 0",
        "version 2 of adapter 'a' is deleted; undelete it first",
        "adapter 'a' has no version 9; its newest is 3",
    ]
    short = await put(shelf, "x", {"versions": {"1": 0.5, "3": 0.4}})
    assert short.json()["error"]["details"] == ["the shares sum to 0.9: they must sum to 1"]
    assert (await put(shelf, "x", {"version": 9})).status_code == 422
    assert (await shelf.client.get("/v1/adapters/a/aliases")).json() == {"aliases": []}


NO_ALIASES = [
    ("x", {}, 422),
    ("x", {"version": 1, "versions": {"1": 1}}, 422),
    ("x", {"version": True}, 422),
    ("x", {"version": 0}, 422),
    ("x", {"version": 10**30}, 422),
    ("x", {"versions": {"one": 1}}, 422),
    ("x", {"versions": {"1": "all"}}, 422),
    ("x", {"versions": {}}, 422),
    ("x", {"version": 1, "note": "?"}, 422),
    ("12", {"version": 1}, 422),
    ("UP", {"version": 1}, 422),
    ("x", [], 422),
]


async def test_what_is_no_alias_is_refused(shelf: Running) -> None:
    for alias, body, status in NO_ALIASES:
        answer = await put(shelf, alias, body)
        assert answer.status_code == status, body
        assert answer.json()["error"]["message"], body


async def test_an_upload_says_what_is_live(shelf: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> None:
    """New or known, the answer has the versions that the bare name means then, and the aliases."""

    async def upload(seed: int) -> tuple[int, bool, object, object]:
        file = {"file": make_artifact(bert, "bitfit", name="any", seed=seed)}
        answer = (await shelf.client.post("/v1/adapters", files=file, data={"name": "a"})).json()
        return answer["version"], answer["created"], answer["live"], answer["aliases"]

    assert await upload(0) == (1, False, {"3": 1.0}, {})
    assert await upload(9) == (4, True, {"4": 1.0}, {})
    await put(shelf, "production", {"versions": {"1": 0.9, "4": 0.1}})
    assert await upload(9) == (4, False, {"1": 0.9, "4": 0.1}, {"production": {"1": 0.9, "4": 0.1}})


async def test_an_upload_may_be_given_an_alias_at_once(shelf, bert, make_artifact):
    """Also bytes that already are a version; a name that is no alias is refused before anything is stored."""
    form, file = {"name": "a", "alias": "canary"}, {"file": make_artifact(bert, "bitfit", seed=7)}
    assert (await shelf.client.post("/v1/adapters", files=file, data=form)).status_code == 201
    assert await answering(shelf, "a@canary") == 4
    old = {"file": make_artifact(bert, "bitfit", name="any", seed=0)}
    assert (await shelf.client.post("/v1/adapters", files=old, data=form)).status_code == 200
    assert await answering(shelf, "a@canary") == 1
    new = {"file": make_artifact(bert, "bitfit", seed=8)}
    assert (await shelf.client.post("/v1/adapters", files=new, data={**form, "alias": "7"})).status_code == 422
    assert (await shelf.client.get("/v1/adapters/a")).json()["latest"]["version"] == 4


@pytest.mark.parametrize("body", ['{"versions": {"1": 0.5, "1": 1.0}}', '{"version": 1, "version": 2}'])
async def test_a_name_given_twice_is_refused(shelf: Running, body: str) -> None:
    """It would be unclear which share is meant; JSON parsers silently take the last one."""
    headers = {"content-type": "application/json"}
    answer = await shelf.client.put("/v1/adapters/a/aliases/production", content=body, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].endswith(" twice")
