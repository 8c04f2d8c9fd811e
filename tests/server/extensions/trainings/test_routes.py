"""Trainings over a socket. The worker is played: it takes trainings from the registry and leaves a real adapter."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from peltier_server.extensions.trainings import event_feed
from peltier_server.extensions.trainings.event_feed import EventFeed
from peltier_server.extensions.trainings.trainings import Trainings
from peltier_store.registry.errors import TrainingUnknown

from tests.server.conftest import Running, until
from tests.server.extensions.conftest import House
from tests.support.played_worker import PlayedWorker

ROWS = [{"text": "a gem", "label": "good"}, {"text": "a bore", "label": "bad"}]
BODY = {"task": "demo", "examples": ROWS}


@pytest.fixture
async def house(house: House) -> AsyncIterator[House]:
    """Each test leaves no training that waits."""
    yield house
    for client in (house.a, house.b):
        for one in (await client.get("/v1/trainings")).json()["trainings"]:
            await client.post(f"/v1/trainings/{one['id']}/cancel")


async def create(house: House, **body: object) -> dict[str, Any]:
    """`POST /v1/trainings` of tenant a."""
    answer = await house.a.post("/v1/trainings", json={**BODY, **body})
    assert answer.status_code == 202, answer.text
    return answer.json()


async def get(house: House, training: dict[str, Any]) -> dict[str, Any]:
    """`GET /v1/trainings/{id}` of tenant a."""
    answer = await house.a.get(f"/v1/trainings/{training['id']}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def until_ended(house: House, training: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a training until it has ended."""
    async with watch(house.a, training["id"]) as events:
        return [event async for event in events]


@asynccontextmanager
async def watch(client: httpx2.AsyncClient, training_id: str) -> AsyncIterator[Any]:
    """The events of a training as they arrive, and the ids of server-sent events among them."""
    async with client.stream("GET", f"/v1/trainings/{training_id}/events") as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _parse(answer)


async def _parse(answer: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            event = json.loads(fields["data"])
            assert fields["event"] == event.get("kind", "error")
            assert fields.get("id") == (str(event["id"]) if "id" in event else None)
            yield event
            fields = {}


async def test_examples_become_a_live_adapter(house: House, worker: PlayedWorker, artifact: bytes) -> None:
    """Queued, running with progress, publishing, succeeded; then the task answers, by its alias too. The rows are a
    file that no list shows until then."""
    made = await create(house, publish={"alias": "best"}, seed=3)
    content = (await house.a.get(f"/v1/files/{made['file_id']}/content")).text
    assert [json.loads(line) for line in content.splitlines()] == ROWS
    assert (await house.a.get("/v1/files")).json()["data"] == []
    assert (made["id"][:4], made["status"], made["task"], made["cost"]) == ("trn_", "queued", "demo", {"seconds": 0.0})
    assert made["request"] == {"task": "demo", "publish": {"alias": "best"}, "seed": 3}
    training = await worker.begin()
    for action, wish in (("pause", "pause"), ("resume", None)):
        answer = await house.a.post(f"/v1/trainings/{made['id']}/{action}")
        assert (answer.json()["status"], answer.json()["wish"]) == ("running", wish)
    await worker.report(training, "One step is done.")
    running = await get(house, made)
    assert (running["status"], running["seconds_left"], running["cost"]) == ("running", 3.0, {"seconds": 1.5})
    assert (running["progress"]["step"], running["preflight"]) == (1, {"rows": 2})
    await worker.leave(training, artifact)
    await until_ended(house, made)
    done = await get(house, made)
    assert done["reason"] is None
    assert (done["status"], done["adapter"], done["metrics"]) == ("succeeded", "demo@1", {"accuracy": 0.9})
    assert done["finished_at"] >= done["started_at"] >= done["created_at"]
    answer = await house.a.post("/v1/tasks/demo@best/predict", json={"inputs": "a good film"})
    assert answer.status_code == 200, answer.text
    assert (await house.a.get(f"/v1/files/{made['file_id']}")).status_code == 404


async def test_a_file_that_a_training_owns_is_not_listed(house):
    uploaded = (await house.upload("t.jsonl", b'{"text": "x", "label": "good"}\n')).json()["id"]
    await create(house, examples=None, file_id=uploaded, owns_files=True)
    assert (await house.a.get("/v1/files")).json()["data"] == []


async def test_a_stream_of_a_caller_who_leaves_gives_its_place_back(house: House, worker: PlayedWorker) -> None:
    """And reads the registry no more."""
    made, feed = await create(house), house.listening.app.state.started[Trainings].event_feed
    async with watch(house.a, made["id"]) as events:
        await anext(events)
        assert feed.num_streams == 1
    await until(lambda: not feed.num_streams)


async def test_streams_are_bounded_for_each_tenant(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is refused, one of another tenant is not."""
    monkeypatch.setattr(event_feed, "MAX_STREAMS_OF_ONE", 1)
    made = await create(house)
    other = (await house.b.post("/v1/trainings", json=BODY)).json()
    async with watch(house.a, made["id"]) as events:
        await anext(events)
        answer = await house.a.get(f"/v1/trainings/{made['id']}/events")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_full")
        headers = {"last-event-id": "x"}
        assert (await house.a.get(f"/v1/trainings/{made['id']}/events", headers=headers)).status_code == 422
        async with watch(house.b, other["id"]) as others:
            assert (await anext(others))["kind"] == "state"


async def test_a_deleted_training_ends_its_stream_with_an_error(house: House) -> None:
    made = await create(house)
    async with asyncio.timeout(60), watch(house.a, made["id"]) as events:
        await anext(events)
        await house.a.post(f"/v1/trainings/{made['id']}/cancel")
        await house.a.delete(f"/v1/trainings/{made['id']}")
        last = [event async for event in events][-1]
    # The stream may have read the cancellation before the deletion.
    assert last.get("error", {}).get("code") == "training_not_found" or last["data"]["state"] == "cancelled"


async def test_trainings_are_listed_in_pages_and_by_status(house: House) -> None:
    ids = [(await create(house))["id"] for _ in range(3)]
    await house.a.post(f"/v1/trainings/{ids[0]}/cancel")
    first = (await house.a.get("/v1/trainings", params={"limit": 2})).json()
    assert [one["id"] for one in first["trainings"]] == ids[:0:-1]
    second = (await house.a.get("/v1/trainings", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert ([one["id"] for one in second["trainings"]], second["next_cursor"]) == (ids[:1], None)
    ended = (await house.a.get("/v1/trainings", params={"status": ["cancelled", "failed"]})).json()["trainings"]
    assert [one["id"] for one in ended] == ids[:1]
    assert (await house.a.get("/v1/trainings", params={"status": "lost"})).status_code == 422


async def test_a_tenant_sees_its_own_trainings_only(house: House) -> None:
    """Others' are like those that do not exist, in each call, and so are others' files."""
    made = await create(house)
    missing = "trn_" + "0" * 24
    calls = [("GET", ""), ("GET", "/events"), ("DELETE", ""), *(("POST", f"/{one}") for one in ("pause", "cancel"))]
    for method, path in [*calls, ("POST", "/resume")]:
        answers = [await house.b.request(method, f"/v1/trainings/{one}{path}") for one in (made["id"], missing)]
        assert [answer.status_code for answer in answers] == [404, 404], path
        assert answers[0].text.replace(made["id"], missing) == answers[1].text
    assert (await house.b.get("/v1/trainings")).json()["trainings"] == []
    assert (await house.b.get("/v1/trainings", params={"cursor": made["id"]})).status_code == 404
    for field in ("file_id", "validation_file_id"):
        body = {"task": "demo", field: made["file_id"]} | ({"examples": ROWS} if field != "file_id" else {})
        answer = await house.b.post("/v1/trainings", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "file_not_found")
    assert (await get(house, made))["status"] == "queued"


async def test_trainings_need_the_scope_train(house: House) -> None:
    """403 for a key with all others."""
    for call in (house.reader.get("/v1/trainings"), house.reader.post("/v1/trainings", json=BODY)):
        answer = await call
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


async def test_a_resumed_training_needs_room_as_a_new_one(house: House, worker: PlayedWorker) -> None:
    """With the answer of a new one; also for OpenAI's client."""
    made = await create(house)
    await worker.fail(await worker.begin())
    await house.limit(max_trainings=0)
    for path in (f"/v1/trainings/{made['id']}/resume", f"/v1/fine_tuning/jobs/{made['id']}/resume"):
        answer = await house.a.post(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "quota_exceeded")
        assert int(answer.headers["retry-after"]) == 60
    await house.limit(max_training_rows=1)
    for path in (f"/v1/trainings/{made['id']}/resume", f"/v1/fine_tuning/jobs/{made['id']}/resume"):
        answer = await house.a.post(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


async def test_quotas_of_trainings(house: House) -> None:
    """Too many at a time wait; too many rows never fit, which is said first. Neither leaves its rows."""
    await house.limit(max_trainings=1)
    made = await create(house)
    answer = await house.a.post("/v1/trainings", json=BODY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "quota_exceeded")
    assert int(answer.headers["retry-after"]) == 60
    await house.limit(max_trainings=1, max_training_rows=3)
    answer = await house.a.post("/v1/trainings", json={**BODY, "validation": ROWS})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    sentence = f"the training has 4 examples, and a training of tenant {house.tenant!r} may have 3"
    assert answer.json()["error"]["message"] == sentence
    await house.a.post(f"/v1/trainings/{made['id']}/cancel")
    usage = (await house.operator.get(f"/v1/tenants/{house.tenant}/usage")).json()
    assert usage["stored_bytes"] == len(json.dumps(made["request"]))


@pytest.mark.parametrize("path", ["/v1/trainings", "/v1/fine_tuning/jobs"])
async def test_a_repeated_request_gets_the_first_training(house: House, path: str) -> None:
    """By its key, also after its file is deleted and while the first is being answered; another body is refused."""
    line = b'{"text": "x", "label": "good"}\n{"text": "y", "label": "bad"}\n'
    file_id = (await house.upload("t.jsonl", line)).json()["id"]
    body: dict[str, Any] = {"model": "bitfit", "training_file": file_id} if "jobs" in path else BODY
    for word in ('"8e03978e-40d5-43dd-bc93-6894a57f9324"', "retry 1"):
        headers = {"idempotency-key": word}
        answers = await asyncio.gather(*(house.a.post(path, json=body, headers=headers) for _ in range(3)))
        assert len({(answer.status_code, answer.json()["id"]) for answer in answers}) == 1
        assert answers[0].is_success
        made = answers[0].json()["id"]
        await house.a.post(f"/v1/trainings/{made}/cancel")
    await house.a.delete(f"/v1/files/{file_id}")
    again = await house.a.post(path, json=body, headers=headers)
    assert (again.is_success, again.json()["id"], again.json()["status"]) == (True, made, "cancelled")
    assert len((await house.a.get("/v1/trainings")).json()["trainings"]) == 2
    other = await house.a.post(path, json={**body, "seed": 7}, headers=headers)
    assert (other.status_code, "was sent with another request" in other.text) == (400 if "jobs" in path else 422, True)


async def test_a_repeated_request_leaves_no_rows(house: House) -> None:
    headers = {"idempotency-key": "once"}
    answers = await asyncio.gather(*(house.a.post("/v1/trainings", json=BODY, headers=headers) for _ in range(4)))
    (made,) = {answer.json()["id"]: answer.json() for answer in answers}.values()
    usage = (await house.operator.get(f"/v1/tenants/{house.tenant}/usage")).json()
    content = (await house.a.get(f"/v1/files/{made['file_id']}/content")).content
    assert usage["stored_bytes"] == len(content) + len(json.dumps(made["request"]))


@pytest.mark.parametrize("word", ["", "a" * 256])
async def test_a_key_that_is_none_is_refused(caller: Running, word: str) -> None:
    answer = await caller.client.post("/v1/trainings", json=BODY, headers={"idempotency-key": word})
    assert answer.status_code == 422


async def test_lists_have_no_requests(house: House) -> None:
    """A page costs the same with a thousand labels; a list of jobs is cut where it would read too many of them."""
    labels = [f"{number:04}" + "\u00e9" * 240 for number in range(1000)]
    rows = [{"text": "x", "label": labels[0]}]
    made = [await create(house, labels=labels, examples=rows, preset="bitfit") for _ in range(3)]
    page = await house.a.get("/v1/trainings")
    assert [one["id"] for one in page.json()["trainings"]] == [one["id"] for one in reversed(made)]
    assert made[0].keys() - page.json()["trainings"][0].keys() == {"request", "preflight"}
    first = page.json()["trainings"][0]
    assert (first["preset"], first["recipe"], first["task_type"], len(page.content) < 3000) == (
        "bitfit",
        None,
        None,
        True,
    )
    jobs = (await house.a.get("/v1/fine_tuning/jobs")).json()
    assert ([one["id"] for one in jobs["data"]], jobs["has_more"]) == ([made[2]["id"]], True)
    assert (await get(house, made[0]))["request"]["labels"] == labels


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"labels": ["good", "b\x1bad"]}, "labels.1: label 'b\\x1bad' contains the invisible character U+001B"),
        ({"validation": [{"text": "x", "label": "a\u202eb"}]}, "row 0 of validation: label 'a\\u202eb' contains"),
        ({"examples": [*ROWS, {"text": "x", "label": "l" * 257}]}, "row 2 of examples: label 'lllll"),
        (
            {"examples": [{"text": "x", "topic": ["a", "b\n"]}], "label_column": "topic", "task_type": "multilabel"},
            "row 0 of examples: label 'b\\n' contains the invisible character U+000A",
        ),
    ],
)
async def test_labels_that_no_artifact_may_have_are_refused(caller, change, problem):
    """With their rows, before the training waits for a worker."""
    answer = await caller.client.post("/v1/trainings", json={**BODY, **change})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_input"), answer.text
    assert answer.json()["error"]["details"][0].startswith(problem)


async def test_other_columns_may_have_any_text(caller: Running) -> None:
    """So may the answers of texts, and numbers that are labels."""
    rows = [{"text": "a\x1b", "label": 1}, {"text": "b\u202e", "label": 2}]
    answer = await caller.client.post("/v1/trainings", json={**BODY, "examples": rows})
    assert answer.status_code == 202
    await caller.client.post(f"/v1/trainings/{answer.json()['id']}/cancel")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"examples": None}, "a training has examples or file_id, exactly one of them"),
        ({"file_id": "file-1"}, "a training has examples or file_id, exactly one of them"),
        ({"preset": "compactor"}, "preset 'compactor' is unknown, the nearest is 'compacter'; it is one of "),
        ({"task_type": "clustering"}, "task_type is 'clustering': input should be 'classification'"),
        ({"task_type": "text2text"}, "text2text needs a T5, and this server's backbone is bert"),
        ({"budget": {}}, "budget: a budget has steps or minutes, exactly one of them"),
        ({"budget": {"steps": 1, "minutes": 1}}, "budget: a budget has steps or minutes, exactly one of them"),
        ({"budget": {"minutes": 0}}, "budget.minutes is 0: input should be greater than 0"),
        ({"publish": {"alias": "3"}}, "publish: alias '3' is not allowed: a number means a version"),
        ({"publish": {"guard": {"shadow": True}}}, "a guard needs the alias that it guards"),
        ({"publish": {"alias": "a", "guard": {}}}, "a guard has either a share between 0 and 1, or shadow: true"),
        ({"publish": {"alias": "A!"}}, "publish.alias is 'A!': string should match pattern"),
        ({"task": "No Name"}, "task is 'No Name': string should match pattern"),
        ({"examples": []}, "examples: list should have at least 1 item"),
        ({"examples": [{}]}, "examples.0: dictionary should have at least 1 item"),
        ({"validation_share": 1.0}, "validation_share is 1.0: input should be less than or equal to 0.9"),
        ({"validation": ROWS, "validation_share": 0.1}, "a training has validation and validation_share; it can"),
        ({"settings": {"n": {}}}, "settings.n: must be true or false, a finite number, or a text"),
        ({"seed": -1}, "seed is -1: input should be greater than or equal to 0"),
        ({"notes": "x"}, "notes is unknown here"),
        ({"label_column": "a\0"}, "the text of the request 'a\\x00' contains a zero byte or a lone surrogate"),
        ({"text_columns": ["text", "a\0"]}, "the text of the request 'a\\x00' contains a zero byte"),
        ({"settings": {"a\0": 1}}, "the text of the request 'a\\x00' contains a zero byte"),
        ({"settings": {"template": "a\0"}}, "the text of the request 'a\\x00' contains a zero byte"),
        ({"metadata": {"a": "\0"}}, "the text of the request '\\x00' contains a zero byte"),
        ({"recipe": "a\0"}, "the text of the request 'a\\x00' contains a zero byte"),
    ],
)
async def test_what_cannot_be_trained_is_refused_at_once(caller: Running, change: dict[str, Any], message: str) -> None:
    body = {name: value for name, value in {**BODY, **change}.items() if value is not None}
    answer = await caller.client.post("/v1/trainings", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_input"), answer.text
    assert message in answer.json()["error"]["message"]
    assert (await caller.client.get("/v1/trainings")).json()["trainings"] == []


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"text": NaN}', "row 1 of examples has the number nan, which is not finite"),
        ('{"text": 1e999}', "row 1 of examples has the number inf, which is not finite"),
        ('{"text": ' + "[" * 20 + "]" * 20 + "}", "row 1 of examples nests values deeper than 8 levels"),
        ('{"text": "\\ud800"}', "row 1 of examples has a lone surrogate, which is no text"),
    ],
)
async def test_hostile_rows_are_refused_in_one_sentence(caller: Running, row: str, message: str) -> None:
    """Numbers that are none, nests and text that is none."""
    body = f'{{"task": "demo", "examples": [{{"text": "x", "label": 1}}, {row}]}}'
    answer = await caller.client.post("/v1/trainings", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_input"), answer.text
    assert message in answer.json()["error"]["message"]


@pytest.fixture
async def training(running):
    """A training that waits."""
    return (await running.client.post("/v1/trainings", json=BODY)).json()["id"]


@pytest.fixture
async def feed(running: Running) -> EventFeed:
    """The feed of the server, whose registry changes through it alone."""
    return running.app.state.started[Trainings].event_feed


async def test_a_silent_training_gives_heartbeats(feed, training, monkeypatch):
    """After its events; the registry is not read again meanwhile."""
    monkeypatch.setattr(event_feed, "_TICKS_OF_SILENCE", 2)
    events = feed.events("default", training, 0, lambda: False)
    async with asyncio.timeout(60):
        first = await anext(events)
        assert first is not None
        assert first.data == {"state": "queued"}
        assert await anext(events) is None
        assert await anext(events) is None


async def test_streams_end_when_the_server_leaves(feed: EventFeed, training: str) -> None:
    """So that they do not hold up its drain."""
    leaving = False
    events = feed.events("default", training, 0, lambda: leaving)
    async with asyncio.timeout(60):
        await anext(events)
        leaving = True
        assert [one async for one in events] == []


async def test_an_unknown_training_has_no_events(feed: EventFeed) -> None:
    with pytest.raises(TrainingUnknown):
        await anext(feed.events("default", "trn_none", 0, lambda: False))


async def test_a_failed_training_that_is_resumed_goes_on(running: Running, feed: EventFeed, training: str) -> None:
    """A stream that sees both in one reading follows the training further."""
    trainings = running.service.store.registry.trainings
    await trainings.claim("w")
    await trainings.settle(training, "w", state="failed", reason="a reason")
    await trainings.resume("default", training, actor="test")
    events = feed.events("default", training, 0, lambda: False)
    async with asyncio.timeout(60):
        seen = [await anext(events) for _ in range(4)]
        assert [one and one.data["state"] for one in seen] == ["queued", "running", "failed", "queued"]
        await trainings.cancel("default", training, actor="test")
        assert [one and one.data["state"] async for one in events] == ["cancelled"]
