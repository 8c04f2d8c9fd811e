"""Guarded changes over HTTP."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest
from peltier_backbone.backbone import Backbone
from peltier_server.catalog.sync import RegistrySync
from peltier_server.extensions.rollouts import rollouts
from peltier_store.registry.errors import RegistryError
from peltier_store.registry.extensions.rollout_records import StoredRollout
from peltier_store.registry.extensions.rollouts import RolloutRegistry

from tests.server.conftest import Serve, read_again, until
from tests.server.extensions.rollouts.conftest import TEXTS, Shop


async def judge(shop: Shop, right_version: int, limit: int = 200) -> int:
    """Answers and judges rows, of which only those of one version are right, until the change is decided. Returns
    how many rows it took."""
    for number in range(limit):
        body = await shop.ask(f"r{number}", TEXTS[number % len(TEXTS)])
        is_right = body["adapter"]["version"] == right_version
        told = await shop.tell(f"r{number}", right=is_right)
        assert told.status_code == 200, told.text
        assert told.json()["counted"]
        if told.json()["state"] != "running":
            return number + 1
    raise AssertionError(f"no decision after {limit} rows")


async def test_a_better_candidate_is_promoted(shop: Shop) -> None:
    """By itself; the audit log has the numbers, and a rollback of the alias restores the incumbent."""
    begun = await shop.guard(share=0.5)
    assert begun.status_code == 200, begun.text
    assert begun.json()["versions"] == {"1": 0.5, "2": 0.5}
    await judge(shop, 2)
    state = await shop.state()
    assert (state["state"], state["versions"]) == ("promoted", {"2": 1.0})
    assert state["evidence"]["promotion"] >= state["needed"]["promotion"] == 20
    assert state["reason"].startswith("the candidate is at most 0.02 less accurate: ")
    query = {"tenant": shop.running.tenant}
    entry = (await shop.running.client.get("/v1/audit", params=query)).json()["records"][0]
    assert (entry["actor"], entry["action"], entry["subject"]) == ("guard", "promote_candidate", "a@production")
    assert entry["detail"]["numbers"]["counts"] == state["counts"]
    assert entry["detail"]["reason"] == state["reason"]
    back = await shop.running.client.post("/v1/adapters/a/aliases/production/rollback")
    assert back.json()["versions"] == {"1": 1.0}


@pytest.mark.parametrize(("at_end", "state"), [("promote", "promoted"), ("roll_back", "rolled_back")])
async def test_time_runs_out(shop: Shop, at_end: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is undecided then is decided as the guard says, also without requests."""
    monkeypatch.setattr(rollouts, "_REPORT_SECONDS", 0.01)
    await shop.guard(share=0.5, max_hours=1e-6, at_end=at_end)
    key = (shop.running.tenant, "a", "production")
    await until(lambda: key not in shop.rollouts.recorder.running)
    found = await shop.state()
    assert found["state"] == state
    assert found["reason"] == f"nothing was proven within 1e-06 hours, and at_end is {at_end}"


async def test_an_answer_counts_once_though_the_registry_seems_to_fail(shop, monkeypatch):
    """Every second report is stored, and its answer is lost."""
    report, lost = RolloutRegistry.report, itertools.cycle([True, False])

    async def lose(self: RolloutRegistry, *given: Any) -> list[StoredRollout]:
        found = await report(self, *given)
        if next(lost):
            raise RegistryError("the connection was closed")
        return found

    monkeypatch.setattr(RolloutRegistry, "report", lose)
    await shop.guard(share=0.5)
    for number in range(20):
        await shop.ask(f"r{number}")
        if number % 4 == 3:
            await shop.running.run(shop.rollouts.report())
    monkeypatch.undo()
    counts = (await shop.state())["counts"]
    assert sum(counts[arm]["answers"] for arm in ("candidate", "incumbent")) == 20


async def test_an_alias_that_is_deleted_meanwhile_is_answered_as_it_was(shop, monkeypatch):
    """The answer is that of the change, whatever the server reads afterwards."""
    running, sync = shop.running, RegistrySync.sync_after_write

    async def delete_before(self: RegistrySync) -> None:
        registry = running.service.store.registry
        await registry.delete_alias(running.tenant, "a", "production", actor="another caller")
        await sync(self)

    with monkeypatch.context() as patch:
        patch.setattr(RegistrySync, "sync_after_write", delete_before)
        begun = await shop.guard(share=0.25)
    assert (begun.status_code, begun.json()["versions"]) == (200, {"1": 0.75, "2": 0.25})
    assert (await running.client.post("/v1/adapters/a/aliases/production/rollback")).status_code == 200
    await running.client.put("/v1/adapters/a/aliases/production", json={"version": 1})
    await shop.guard(share=0.25)
    monkeypatch.setattr(RegistrySync, "sync_after_write", delete_before)
    stopped = await running.client.post("/v1/adapters/a/aliases/production/stop")
    assert (stopped.status_code, stopped.json()["versions"]) == (200, {"1": 1.0})


async def test_each_row_of_each_kind_of_request_takes_feedback(shop: Shop) -> None:
    """By its place in the request; the label is that of the answer, and the hash that of the input."""
    await shop.guard(share=0.5)
    predictions = (await shop.ask("many", TEXTS[:3]))["predictions"]
    for row, one in enumerate(predictions):
        told = (await shop.tell("many", row=row, label=one["label"])).json()
        assert (told["row"], told["right"], told["counted"]) == (row, True, True)
    items = [{"task": "a@2", "input": TEXTS[0]}, {"task": "a", "input": TEXTS[1]}]
    mixed = await shop.running.client.post("/v1/predict", json={"requests": items}, headers={"x-request-id": "mixed"})
    version = mixed.json()["results"][1]["adapter"]["version"]
    told = (await shop.tell("mixed", row=1, right=False)).json()
    assert (told["version"], told["right"], told["adapter"]) == (version, False, "a")
    assert (await shop.tell("mixed", row=0, right=True)).status_code == 404  # a version by its number is not guarded


WRONG_FEEDBACK: list[tuple[dict[str, object], int, str, str]] = [
    ({"request_id": "none", "right": True}, 404, "answer_not_found", "no answer is recorded for row 0 of request"),
    ({"row": 7, "right": True}, 404, "answer_not_found", "no answer is recorded for row 7 of request 'r'"),
    ({"label": "dull"}, 422, "invalid_input", "label 'dull' is not one of the task's labels: negative, positive"),
    ({"label": ["positive"]}, 422, "invalid_input", "label is a list, and the answers of a classification task"),
    ({}, 422, "invalid_input", "feedback has the right label, or right: true or false; exactly one of them"),
    ({"right": True, "label": "positive"}, 422, "invalid_input", "exactly one of them"),
    ({"right": "yes"}, 422, "invalid_input", "right is 'yes': input should be a valid boolean"),
    ({"row": -1, "right": True}, 422, "invalid_input", "row is -1: input should be greater than or equal to 0"),
]


async def test_wrong_feedback(shop: Shop) -> None:
    """One sentence each, and the right one still counts afterwards."""
    await shop.guard(share=0.5)
    await shop.ask("r")
    for feedback, status, code, sentence in WRONG_FEEDBACK:
        refused = await shop.tell(**{"request_id": "r", **feedback})
        assert (refused.status_code, refused.json()["error"]["code"]) == (status, code), feedback
        assert sentence in refused.json()["error"]["message"]
    assert (await shop.tell("r", right=True)).status_code == 200
    again = await shop.tell("r", right=False)
    assert (again.status_code, again.json()["error"]["message"]) == (409, "row 0 of request 'r' has feedback already")


WRONG_GUARDS: list[tuple[dict[str, object], str]] = [
    ({}, "a guard has either a share between 0 and 1, or shadow: true"),
    ({"share": 1}, "guard.share is 1: input should be less than 1"),
    ({"share": 0.1, "shadow": True}, "a guard has either a share between 0 and 1, or shadow: true"),
    ({"shadow": True, "alpha": 0.9}, "guard.alpha is 0.9: input should be less than or equal to 0.5"),
    ({"shadow": True, "nothing": 1}, "guard.nothing is unknown here"),
]


async def test_wrong_guards(shop: Shop) -> None:
    for guard, sentence in WRONG_GUARDS:
        refused = await shop.guard(**guard)
        assert (refused.status_code, sentence in refused.json()["error"]["message"]) == (422, True), refused.text


async def test_changes_that_cannot_be_guarded(shop: Shop, bert: Backbone, make_artifact: Callable[..., bytes]) -> None:
    """An unknown version, the same version, a second change, an alias that is not there, and versions of two types."""
    assert (await shop.guard(9, share=0.5)).json()["error"]["code"] == "version_not_found"
    assert (await shop.guard(1, share=0.5)).status_code == 409
    await shop.guard(share=0.5)
    assert (await shop.guard(3, share=0.5)).status_code == 409
    embedding = make_artifact(bert, "bitfit", name="e", task_type="embedding")
    await shop.running.publish("e", embedding, make_artifact(bert, "bitfit", name="e", seed=1))
    assert (await shop.running.client.put("/v1/adapters/e/aliases/production", json={"version": 1})).status_code == 200
    refused = await shop.guard(2, "e", share=0.5)
    assert "a guarded change needs two versions of one type; these are classification and embedding" in refused.text
    client = shop.running.client
    both = await client.put("/v1/adapters/a/aliases/x", json={"candidate": 2, "version": 1, "guard": {"share": 0.5}})
    assert both.status_code == 422
    alone = await client.put("/v1/adapters/a/aliases/x", json={"candidate": 2})
    assert "a candidate needs a guard" in alone.text
    missing = await client.put("/v1/adapters/a/aliases/x", json={"candidate": 2, "guard": {"share": 0.5}})
    assert missing.json()["error"]["message"] == "adapter 'a' has no alias 'x'"
    assert (await client.get("/v1/adapters/a/aliases/x")).status_code == 404
    assert "rollout" not in (await client.get("/v1/adapters/a/aliases")).text


@pytest.fixture
async def vectors(shop: Shop, bert: Backbone, make_artifact: Callable[..., bytes]) -> Shop:
    """The server has two versions of an embedding `e`, too, of which `production` means the first."""
    two = (make_artifact(bert, "bitfit", name="e", task_type="embedding", seed=seed) for seed in range(2))
    await shop.running.publish("e", *two)
    changed = await shop.running.client.put("/v1/adapters/e/aliases/production", json={"version": 1})
    assert changed.status_code == 200
    return shop


@pytest.mark.parametrize("guard", [{"share": 0.5}, {"shadow": True}])
async def test_answers_that_are_not_judged_are_compared_by_errors(vectors: Shop, guard: dict[str, object]) -> None:
    """Alone; their feedback is refused, and the end decides."""
    assert (await vectors.guard(2, "e", at_end="promote", **guard)).status_code == 200
    for number in range(20):
        await vectors.ask(f"r{number}", task="e")
        await vectors.settled(f"r{number}")
    told = await vectors.tell("r0", label="good")
    assert told.status_code == 422
    assert told.json()["error"]["message"] == (
        "the answers of adapter 'e' are neither right nor wrong: feedback is for classification, multilabel, text2text"
    )
    rollout = (await vectors.running.client.get("/v1/adapters/e/aliases/production")).json()["rollout"]
    assert sum(rollout["counts"]["errors"].values()) > 0
    assert not {"accuracy", "disagreement"} & set(rollout["counts"])


async def test_a_default_server_records_nothing_outside_of_a_change(shop: Shop) -> None:
    """So that nothing is stored of requests that nobody compares."""
    await shop.ask("r")
    assert (await shop.tell("r", right=True)).json()["error"]["code"] == "answer_not_found"


@pytest.fixture
async def recording(serve: Serve, bert: Backbone, make_artifact: Callable[..., bytes]) -> AsyncIterator[Shop]:
    """A server that records three answers a second outside of guarded changes, with the adapter `a`."""
    async with serve(recorded_answers_per_second=3) as running:
        await running.publish("a", *(make_artifact(bert, "bitfit", name="a", seed=seed) for seed in range(2)))
        yield Shop(running)


async def test_feedback_outside_of_a_change_gives_the_accuracy_of_a_version(recording: Shop) -> None:
    """By the label or by right and wrong, once for each row; the metrics have it."""
    body = await recording.ask("r", TEXTS[:3], task="a@1")
    label = body["predictions"][0]["label"]
    told = (await recording.tell("r", label=label)).json()
    assert (told["adapter"], told["version"], told["right"], told["counted"]) == ("a", 1, True, False)
    assert "state" not in told
    assert (await recording.tell("r", row=1, right=False)).json()["right"] is False
    assert (await recording.tell("r", row=1, right=True)).status_code == 409
    assert (await recording.tell("r", row=2, label="dull")).status_code == 422
    page = (await recording.running.client.get("/metrics")).text
    labels = 'adapter="a",result="wrong",tenant="default",version="1"'
    assert f"peltier_adapter_feedback_total{{{labels}}} 1.0" in page


async def test_answers_outside_of_a_change_are_bounded_by_the_second(recording, monkeypatch):
    """Rows beyond the rate take no feedback; the next second has room again."""
    now = [0.0]
    monkeypatch.setattr(recording.rollouts.recorder, "_clock", lambda: now[0])
    await recording.ask("r", TEXTS[:2])
    await recording.ask("s", TEXTS[:2])
    now[0] = 1.0
    await recording.ask("t")
    found = [(await recording.tell(*one, right=True)).status_code for one in (("r",), ("s",), ("t",))]
    assert found == [200, 200, 200]
    assert (await recording.tell("s", row=1, right=True)).status_code == 404


async def test_only_judged_answers_to_the_own_tenant_are_recorded(recording, bert, make_artifact):
    """An embedding is neither right nor wrong, and a caller of another tenant's public adapter does not judge it."""
    await recording.running.upload(make_artifact(bert, "bitfit", name="e", task_type="embedding"))
    await recording.ask("e", task="e")
    await ask_as_another_tenant(recording)
    assert list(recording.rollouts.recorder.take()) == []


async def ask_as_another_tenant(shop: Shop) -> None:
    """Makes the adapter public; a new tenant asks it."""
    client = shop.running.client
    assert (await client.patch("/v1/adapters/a", json={"public": True})).status_code == 200
    await client.post("/v1/tenants", json={"name": "b"})
    admin = (await client.post("/v1/keys", json={"tenant": "default", "scopes": ["admin"]})).json()["key"]
    wanted, headers = {"tenant": "b", "scopes": ["predict"]}, {"authorization": f"Bearer {admin}"}
    key = (await client.post("/v1/keys", json=wanted, headers=headers)).json()["key"]
    headers = {"authorization": f"Bearer {key}", "x-request-id": "b"}
    asked = await client.post("/v1/tasks/default:a/predict", json={"inputs": "good"}, headers=headers)
    assert asked.status_code == 200


async def test_other_tenants_decide_nothing(own_shop: Shop) -> None:
    """Only requests of the adapter's own tenant count for its guarded change, also if the adapter is public."""
    assert (await own_shop.guard(share=0.5)).status_code == 200
    await ask_as_another_tenant(own_shop)
    assert list(own_shop.rollouts.recorder.take()) == []


async def test_answers_of_a_deleted_version_take_no_label(recording: Shop) -> None:
    """Whose labels are not known any more."""
    await recording.ask("r", task="a@1")
    assert (await recording.running.client.delete("/v1/adapters/a/versions/1")).status_code == 204
    answer = await recording.tell("r", label="positive")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "answer_not_found")


@pytest.mark.slow
async def test_another_replica_takes_feedback_and_decides(serve: Serve, own_shop: Shop) -> None:
    """Of one registry: each sees the change, and one of them decides, once."""
    begun = await own_shop.guard(share=0.5)
    assert begun.status_code == 200
    async with serve() as other:
        replicas = [own_shop, Shop(other)]
        for number in range(200):
            await read_again(other)
            body = await replicas[number % 2].ask(f"r{number}")
            # The replica that answered reports within a second.
            await replicas[number % 2].rollouts.report()
            is_right = body["adapter"]["version"] == 2
            told = await replicas[(number + 1) % 2].tell(f"r{number}", right=is_right)
            assert told.status_code == 200, told.text
            if not told.json()["counted"] or (await own_shop.state())["state"] != "running":
                break
        states = [await one.state() for one in replicas]
        assert [one["state"] for one in states] == ["promoted"] * 2
        assert states[0]["counts"] == states[1]["counts"]
        await read_again(other)
        assert (await replicas[1].ask("later"))["adapter"]["version"] == 2
    entries = (await own_shop.running.client.get("/v1/audit?action=promote_candidate")).json()["records"]
    assert len(entries) == 1


async def test_feedback_waits_for_the_report_of_another_replica(serve, own_shop, monkeypatch):
    """Which comes every second."""
    monkeypatch.setattr(rollouts, "_WAIT_SECONDS", 0.2)
    sleep = asyncio.sleep

    async def report_meanwhile(seconds: float, *given: object) -> object:
        if seconds == rollouts._WAIT_SECONDS:
            await own_shop.rollouts.report()
        return await sleep(seconds, *given)

    await own_shop.guard(share=0.5)
    async with serve() as other:
        monkeypatch.setattr(asyncio, "sleep", report_meanwhile)
        await own_shop.ask("r")
        assert (await Shop(other).tell("r", right=True)).status_code == 200


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
