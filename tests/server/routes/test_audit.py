"""The audit log over HTTP."""

from collections.abc import Callable

import pytest
from peltier_backbone.backbone import Backbone

from tests.server.conftest import Running


@pytest.fixture
async def busy(running: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> Running:
    """A server on which everything that changes something has been called once."""
    for seed in (0, 1):
        await running.upload(make_artifact(bert, "bitfit", name="a", seed=seed))
    client, a = running.client, "/v1/adapters/a"
    for call in (
        client.put(f"{a}/aliases/live", json={"version": 1}),
        client.put(f"{a}/aliases/live", json={"versions": {"1": 0.5, "2": 0.5}}),
        client.post(f"{a}/aliases/live/rollback"),
        client.delete(f"{a}/aliases/live"),
        client.post(f"{a}/versions/1/deprecate", json={"reason": "old"}),
        client.patch(a, json={"public": True}),
        client.delete(f"{a}/versions/1"),
        client.post(f"{a}/versions/1/undelete"),
        client.delete(a),
    ):
        assert (await call).is_success
    return running


async def test_every_change_is_in_the_log_with_its_actor(busy: Running) -> None:
    """Newest first; what failed or changed nothing is not there."""
    await busy.client.delete("/v1/adapters/nope")
    await busy.upload(b"nonsense")
    records = (await busy.client.get("/v1/audit")).json()["records"]
    assert [(record["action"], record["subject"]) for record in reversed(records)] == [
        ("publish", "a@1"),
        ("publish", "a@2"),
        ("set_alias", "a@live"),
        ("set_alias", "a@live"),
        ("rollback_alias", "a@live"),
        ("delete_alias", "a@live"),
        ("deprecate", "a@1"),
        ("set_public", "a"),
        ("delete_version", "a@1"),
        ("undelete", "a@1"),
        ("delete_adapter", "a"),
    ]
    assert {record["actor"] for record in records} == {"local"}
    assert {record["tenant"] for record in records} == {"default"}
    assert records[-4]["detail"] == {"split": {"1": 0.5, "2": 0.5}}


async def test_the_log_comes_in_pages(busy: Running) -> None:
    """The cursor of one leads to the next; a tenant without records has none."""
    seen, cursor = [], ""
    while cursor is not None:
        page = (await busy.client.get("/v1/audit", params={"limit": 4, "cursor": cursor})).json()
        seen += [record["id"] for record in page["records"]]
        cursor = page["next_cursor"]
    assert len(seen) == 11
    assert seen == sorted(seen, reverse=True)
    assert (await busy.client.get("/v1/audit", params={"tenant": "default", "limit": 50})).json()["next_cursor"] is None
    assert (await busy.client.get("/v1/audit", params={"tenant": "other"})).json()["records"] == []


async def test_the_log_is_filtered(busy: Running) -> None:
    """By action, actor and time, also together, and page by page."""

    async def ids(**query: object) -> list[int]:
        answer = await busy.client.get("/v1/audit", params=query)
        return [record["id"] for record in answer.json()["records"]]

    records = (await busy.client.get("/v1/audit")).json()["records"]
    set_aliases = [record["id"] for record in records if record["action"] == "set_alias"]
    assert await ids(action="set_alias") == set_aliases
    assert await ids(action="set_alias", limit=1, cursor=set_aliases[0]) == set_aliases[1:]
    assert await ids(actor="local") == [record["id"] for record in records]
    assert await ids(actor="key:nobody") == []
    middle = records[4]
    assert await ids(since=middle["at"]) == [record["id"] for record in records[:5]]
    assert await ids(until=middle["at"]) == [record["id"] for record in records[5:]]
    assert await ids(since=middle["at"], action="set_alias") == []


WRONG_QUERIES = ["limit=0", "limit=x", "cursor=x", f"cursor={10**30}", "tenant=%00", "tenant=A%20B"]
WRONG_QUERIES += ["actor=", "action=a%00", "since=yesterday", "until=2026-11-21T00:00:00"]


async def test_wrong_queries_are_refused(running: Running) -> None:
    """With a sentence."""
    for query in WRONG_QUERIES:
        answer = await running.client.get(f"/v1/audit?{query}")
        assert answer.status_code == 422, query
        assert answer.json()["error"]["message"], query
