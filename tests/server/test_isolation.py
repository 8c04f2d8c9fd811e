"""What one tenant can learn of another: nothing, by code, message, header, list, metric or timing class.

Tenant b asks about adapters of tenant a in every way there is. Each answer has a twin, about a name that nobody has;
the two must be the same byte for byte once the name is.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from peltier_adapters.batch.row import Row, plan_stages
from peltier_backbone.backbone import Backbone
from peltier_server.context import AdapterKey
from peltier_server.runner import isolation

from tests.server.conftest import ADMIN, IN_ONE_LOOP, Running, hold, make_client, until
from tests.server.http.test_request_middleware import SCOPES

pytestmark = IN_ONE_LOOP
# Both have the same length, so that nothing else differs.
PRIVATE, MISSING = "private", "missing"
# What is different in any two answers.
VOLATILE = frozenset({"date", "x-request-id"})

TENSORS = [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["good"]}]
CALLS: list[tuple[str, str, object]] = [
    ("POST", "/v1/tasks/{reference}/predict", {"inputs": "good"}),
    ("POST", "/v1/tasks/{reference}/predict", {"inputs": "good", "stream": True}),
    ("POST", "/v1/tasks/{reference}/predict", {"inputs": ["good", "bad"], "parameters": {"top_k": 1}}),
    ("POST", "/v1/predict", {"requests": [{"task": "{reference}", "input": "good"}]}),
    ("POST", "/v1/predict", {"tasks": ["{reference}", "{reference}*"], "input": "good"}),
    ("POST", "/v1/completions", {"model": "{reference}", "prompt": "good"}),
    ("POST", "/v1/completions", {"model": "{reference}", "prompt": "good", "stream": True}),
    ("POST", "/v1/embeddings", {"model": "{reference}", "input": "good"}),
    ("GET", "/v1/models/{reference}", None),
    ("POST", "/predict", {"adapter_id": "{reference}", "inputs": "good"}),
    ("POST", "/classify", {"model": "{reference}", "input": "good"}),
    ("POST", "/embed_sparse", {"adapter_id": "{reference}", "inputs": "good"}),
    ("POST", "/similarity", {"adapter_id": "{reference}", "inputs": {"source_sentence": "a", "sentences": ["b"]}}),
    ("POST", "/v2/models/{reference}/infer", {"inputs": TENSORS}),
    ("GET", "/v2/models/{reference}", None),
    ("GET", "/v2/models/{reference}/ready", None),
]
NAMED: list[tuple[str, str, object]] = [
    ("GET", "/v1/adapters/{name}", None),
    ("GET", "/v1/adapters/{name}/versions", None),
    ("GET", "/v1/adapters/{name}/versions/1", None),
    ("GET", "/v1/adapters/{name}/versions/1/manifest", None),
    ("GET", "/v1/adapters/{name}/versions/1/report", None),
    ("GET", "/v1/adapters/{name}/versions/1/artifact", None),
    ("GET", "/v1/adapters/{name}/versions/9/artifact", None),
    ("GET", "/v1/adapters/{name}/aliases", None),
    ("PUT", "/v1/adapters/{name}/pin", {}),
    ("DELETE", "/v1/adapters/{name}/pin", None),
    ("POST", "/v2/repository/models/{name}/load", None),
    ("POST", "/v2/repository/models/{name}/unload", None),
    ("GET", "/v1/adapters/{name}/aliases/live/history", None),
    ("GET", "/v1/adapters/{name}/aliases/live", None),
    ("PUT", "/v1/adapters/{name}/aliases/live", {"candidate": 1, "guard": {"share": 0.5}}),
    ("POST", "/v1/adapters/{name}/aliases/live/stop", None),
    ("PATCH", "/v1/adapters/{name}", {"public": True}),
    ("PUT", "/v1/adapters/{name}/aliases/live", {"version": 1}),
    ("POST", "/v1/adapters/{name}/aliases/live/rollback", None),
    ("DELETE", "/v1/adapters/{name}/aliases/live", None),
    ("POST", "/v1/adapters/{name}/versions/1/deprecate", {"reason": "mine"}),
    ("POST", "/v1/adapters/{name}/versions/1/undelete", None),
    ("DELETE", "/v1/adapters/{name}/versions/1", None),
    ("DELETE", "/v1/adapters/{name}", None),
]
TRAINED: list[tuple[str, str, object]] = [
    ("GET", "/v1/files/{file}", None),
    ("GET", "/v1/files/{file}/content", None),
    ("GET", "/v1/files?after={file}", None),
    ("DELETE", "/v1/files/{file}", None),
    ("POST", "/v1/trainings", {"task": "mine", "file_id": "{file}"}),
    ("POST", "/v1/trainings", {"task": "mine", "examples": [{"text": "x"}], "validation_file_id": "{file}"}),
    ("GET", "/v1/trainings/{training}", None),
    ("GET", "/v1/trainings/{training}/events", None),
    ("GET", "/v1/trainings?cursor={training}", None),
    ("POST", "/v1/trainings/{training}/pause", None),
    ("POST", "/v1/trainings/{training}/resume", None),
    ("POST", "/v1/trainings/{training}/cancel", None),
    ("DELETE", "/v1/trainings/{training}", None),
    ("POST", "/v1/fine_tuning/jobs", {"model": "bitfit", "training_file": "{file}"}),
    ("GET", "/v1/fine_tuning/jobs?after={training}", None),
    ("GET", "/v1/fine_tuning/jobs/{training}", None),
    ("GET", "/v1/fine_tuning/jobs/{training}/events", None),
    ("GET", "/v1/fine_tuning/jobs/{training}/checkpoints", None),
    ("POST", "/v1/fine_tuning/jobs/{training}/cancel", None),
    ("POST", "/v1/fine_tuning/jobs/{training}/pause", None),
    ("POST", "/v1/fine_tuning/jobs/{training}/resume", None),
]
BATCHED: list[tuple[str, str, object]] = [
    ("POST", "/v1/batches", {"input_file_id": "{file}", "endpoint": "/v1/embeddings", "completion_window": "24h"}),
    ("GET", "/v1/batches/{batch}", None),
    ("GET", "/v1/batches?after={batch}", None),
    ("POST", "/v1/batches/{batch}/cancel", None),
]
REFERENCES = ["{name}", "{name}@1", "{name}@9", "{name}@live", "{owner}:{name}", "{owner}:{name}@1"]
REFERENCES += ["{owner}:{name}@9", "{owner}:{name}@live"]


_NUMBERS = itertools.count(10_000)


@dataclass(frozen=True)
class Street:
    """A server with tenants a and b, new in each test, each with a name and a key; b must not learn of the adapter
    `private` of a."""

    running: Running
    names: dict[str, str]
    keys: dict[str, str]
    data: bytes

    async def ask(self, tenant: str, method: str, path: str, body: object = None, **headers: str) -> httpx2.Response:
        """A call by the key of `tenant`. In the path and the body {a} and {b} are the names of the tenants."""
        headers["authorization"] = f"Bearer {self.keys[tenant]}"
        path, body = str(put_in(path, **self.names)), put_in(body, **self.names)
        return await self.running.client.request(method, path, json=body, headers=headers)

    async def upload(self, tenant: str, name: str, data: bytes | None = None) -> httpx2.Response:
        headers = {"authorization": f"Bearer {self.keys[tenant]}"}
        files = {"file": ("a.safetensors", data or self.data)}
        return await self.running.client.post("/v1/adapters", files=files, data={"name": name}, headers=headers)


@pytest_asyncio.fixture(loop_scope="module")
async def street(app_world: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> Street:
    """Both tenants' keys may predict, publish and train."""
    number = next(_NUMBERS)
    names = {tenant: f"{tenant}-{number}" for tenant in ("a", "b")}
    street = Street(app_world, names, {"operator": ADMIN}, make_artifact(bert, "bitfit"))
    for tenant, name in names.items():
        await street.ask("operator", "POST", "/v1/tenants", {"name": name})
        asked = {"tenant": name, "scopes": ["predict", "publish", "train"]}
        street.keys[tenant] = (await street.ask("operator", "POST", "/v1/keys", asked)).json()["key"]
    assert (await street.upload("a", PRIVATE)).status_code == 201
    alias = await street.ask("a", "PUT", f"/v1/adapters/{PRIVATE}/aliases/live", {"version": 1})
    assert alias.status_code == 200
    return street


def put_in(template: object, **names: str) -> object:
    match template:
        case str():
            for name, value in names.items():
                template = template.replace(f"{{{name}}}", value)
            return template
        case dict():
            return {key: put_in(value, **names) for key, value in template.items()}
        case list():
            return [put_in(value, **names) for value in template]
    return template


def seen(answer: httpx2.Response, *names: str) -> tuple[int, dict[str, str], bytes]:
    """All of an answer that its reader can see, but for the names that were asked for."""
    headers, content = {key: value for key, value in answer.headers.items() if key not in VOLATILE}, answer.content
    for name in names:
        content = content.replace(name.encode(), b"NAME")
    return answer.status_code, headers, content


async def test_another_tenants_adapter_does_not_exist(street: Street) -> None:
    """Every way to name it, on every route that takes a reference or a name."""
    ways = [(method, path, body, reference) for method, path, body in CALLS for reference in REFERENCES]
    for name in ("{name}", "{a}:{name}"):
        ways += [(method, path.replace("{name}", name), body, "{name}") for method, path, body in NAMED]
    for method, path, body, reference in ways:
        answers = []
        for name in (PRIVATE, MISSING):
            named = {"reference": reference.replace("{name}", name).replace("{owner}", "{a}"), "name": name}
            answer = await street.ask("b", method, str(put_in(path, **named)), put_in(body, **named))
            answers.append(seen(answer, name))
        assert answers[0] == answers[1], (method, path, reference)
        if path != "/v1/predict":
            assert answers[0][0] == 404, (method, path, reference)
    untouched = (await street.ask("a", "GET", f"/v1/adapters/{PRIVATE}")).json()
    assert (untouched["public"], untouched["num_versions"], list(untouched["aliases"])) == (False, 1, ["live"])


async def require_alike(street: Street, calls: Sequence[tuple[str, str, object]], ids: dict[str, str]) -> None:
    """Each call of b with the ids of a reads 404, to the byte as with ids that nobody has."""
    missing = {name: value[:6] + "0" * (len(value) - 6) for name, value in ids.items()}
    for method, path, body in calls:
        answers = []
        for named in (ids, missing):
            answer = await street.ask("b", method, str(put_in(path, **named)), put_in(body, **named))
            answers.append(seen(answer, *named.values()))
        assert answers[0] == answers[1], (method, path)
        assert answers[0][0] == 404, (method, path)


async def test_another_tenants_trainings_and_files_do_not_exist(street: Street) -> None:
    """By the ids of one that waits, on every route that takes one; it goes on as if nothing had happened."""
    body = {"task": "private", "examples": [{"text": "a good film", "label": "good"}]}
    made = (await street.ask("a", "POST", "/v1/trainings", body)).json()
    await require_alike(street, TRAINED, {"training": made["id"], "file": made["file_id"]})
    assert (await street.ask("b", "GET", "/v1/trainings")).json() == {"trainings": [], "next_cursor": None}
    assert (await street.ask("b", "GET", "/v1/files")).json()["data"] == []
    assert (await street.ask("a", "GET", f"/v1/trainings/{made['id']}")).json() == made


async def test_another_tenants_batches_do_not_exist(street: Street) -> None:
    row = {"custom_id": "1", "method": "POST", "url": "/v1/embeddings", "body": {"model": "_backbone", "input": "a"}}
    headers = {"authorization": f"Bearer {street.keys['a']}"}
    files = {"file": ("rows.jsonl", json.dumps(row).encode())}
    sent = await street.running.client.post("/v1/files", files=files, data={"purpose": "batch"}, headers=headers)
    asked = {"input_file_id": sent.json()["id"], "endpoint": "/v1/embeddings", "completion_window": "24h"}
    made = (await street.ask("a", "POST", "/v1/batches", asked)).json()
    await require_alike(street, BATCHED, {"batch": made["id"], "file": made["input_file_id"]})
    assert (await street.ask("b", "GET", "/v1/batches")).json()["data"] == []
    assert (await street.ask("a", "GET", f"/v1/batches/{made['id']}")).json()["cancelling_at"] is None


async def test_another_tenants_answers_do_not_exist(street, bert, make_artifact):
    """Feedback to them is as that to a request that nobody sent, and does not count."""
    await street.ask("a", "PATCH", f"/v1/adapters/{PRIVATE}", {"public": True})
    await street.upload("a", PRIVATE, make_artifact(bert, "bitfit", seed=7))
    guard = {"candidate": 2, "guard": {"share": 0.5}}
    assert (await street.ask("a", "PUT", f"/v1/adapters/{PRIVATE}/aliases/live", guard)).status_code == 200
    body = {"inputs": "good"}
    await street.ask("a", "POST", f"/v1/tasks/{PRIVATE}@live/predict", body, **{"x-request-id": "theirs00"})
    await street.ask("b", "POST", f"/v1/tasks/{{a}}:{PRIVATE}@live/predict", body, **{"x-request-id": "ofb00000"})
    answers = [
        await street.ask("b", "POST", "/v1/feedback", {"request_id": request_id, "right": False})
        for request_id in ("theirs00", "unknown0", "ofb00000")
    ]
    assert [one.status_code for one in answers] == [404] * 3
    assert answers[0].text.replace("theirs00", "unknown0") == answers[1].text
    assert (await street.ask("a", "POST", "/v1/feedback", {"request_id": "theirs00", "right": True})).status_code == 200
    state = (await street.ask("a", "GET", f"/v1/adapters/{PRIVATE}/aliases/live")).json()["rollout"]
    assert sum(arm.get("answers", 0) for arm in state["counts"].values()) == 1


async def test_no_route_shows_one_tenant_the_metrics_of_all(street: Street) -> None:
    """A key of b with the scope, which an earlier release could create, is refused on each route of the scope."""
    issued = street.running.app.state.keyring.credentials.issue()
    store = street.running.service.store
    scopes = ["metrics", "predict"]
    await store.registry.create_key(
        street.names["b"], prefix=issued.prefix, digest=issued.digest, scopes=scopes, actor="test"
    )
    await store.sync.catch_up()
    street.keys["old"] = issued.text
    measured = [route for route, scope in SCOPES.items() if scope == "metrics"]
    assert measured == ["GET /metrics"]
    for call in measured:
        answer = await street.ask("old", *call.split())
        assert answer.status_code == 403, call
        assert "shows all tenants' adapters" in answer.json()["error"]["message"]
    assert (await street.ask("old", "GET", "/v1/adapters")).status_code == 200


async def test_a_missing_tenant_is_like_a_silent_one(street: Street) -> None:
    """Who else is here cannot be found out by asking for adapters of theirs."""
    for path in ("/v1/models/{tenant}:x", "/v1/models/{tenant}:x@1"):
        silent = street.names["a"]
        answers = [
            seen(await street.ask("b", "GET", path.replace("{tenant}", tenant)), tenant)
            for tenant in (silent, silent.replace("a", "z"))
        ]
        assert answers[0] == answers[1]
        assert answers[0][2].count(b"NAME:x") == 1


async def test_lists_hold_ones_own(street: Street) -> None:
    for path in ("/v1/adapters", f"/v1/adapters?q={PRIVATE}", "/v1/adapters?cursor=a&limit=1000"):
        answer = await street.ask("b", "GET", path)
        assert answer.json() == {"adapters": [], "next_cursor": None}
    models = (await street.ask("b", "GET", "/v1/models")).json()["data"]
    assert [one["id"] for one in models] == ["_backbone"]
    assert (await street.ask("b", "GET", "/info")).json()["num_adapters"] == 0
    assert (await street.ask("a", "GET", "/info")).json()["num_adapters"] == 1


async def test_the_operators_pages_are_closed(street: Street) -> None:
    audit = ("/v1/audit", "/v1/audit?tenant={b}", "/v1/audit?actor=operator", "/v1/audit?action=publish")
    tenants = ("/v1/tenants", "/v1/tenants/{b}", *(f"/v1/tenants/{one}/usage" for one in ("{a}", "{b}", "z")))
    for path in ("/metrics", *audit, *tenants, "/v1/keys"):
        answer = await street.ask("b", "GET", path)
        assert answer.status_code == 403, path
        assert PRIVATE not in answer.text


async def test_the_same_bytes_are_new_to_each_tenant(street: Street) -> None:
    """Tenants share blobs, which neither the status, the version's number nor a cache reveals."""
    mine = await street.upload("b", PRIVATE)
    assert (mine.status_code, mine.json()["version"], mine.json()["tenant"]) == (201, 1, street.names["b"])
    assert (await street.ask("b", "GET", f"/v1/adapters/{PRIVATE}/aliases")).json()["aliases"] == []
    own = await street.ask("b", "POST", f"/v1/tasks/{PRIVATE}/predict", {"inputs": "good"})
    assert own.json()["adapter"]["tenant"] == street.names["b"]
    gone = await street.ask("b", "DELETE", f"/v1/adapters/{PRIVATE}")
    assert gone.status_code == 204
    still = await street.ask("a", "POST", f"/v1/tasks/{PRIVATE}/predict", {"inputs": "good"})
    assert still.status_code == 200


async def test_the_same_bytes_are_proved_for_each_tenant(street: Street) -> None:
    """An upload that is spared its golden examples, because they have run for another, would tell that it is there."""
    batcher = street.running.service.batcher
    async with hold(street.running):
        uploading = asyncio.create_task(street.upload("b", PRIVATE))
        await until(lambda: uploading.done() or street.names["b"] in batcher.queued_tokens_by_tenant())
        assert not uploading.done()
    assert (await uploading).status_code == 201


async def test_the_same_bytes_are_on_the_device_for_each_tenant(street: Street) -> None:
    """Neither the tier nor the time of a load tells that another has just used them."""
    digest = (await street.upload("b", PRIVATE)).json()["digest"]
    for tenant in ("a", "b"):
        street.running.service.slots.retire(AdapterKey(street.names[tenant], digest))
    for tenant in ("a", "b"):
        answer = await street.ask(tenant, "POST", f"/v1/tasks/{PRIVATE}/predict", {"inputs": "good"})
        assert answer.headers["x-adapter-tier"] == answer.json()["tier"] == "store", tenant
        assert answer.json()["timings_ms"]["load"] > 0, tenant


async def test_etags_answer_owners_alone(street: Street) -> None:
    """Who knows a digest, or sends `*`, does not learn whether it is stored."""
    path = f"/v1/adapters/{PRIVATE}/versions/1/artifact"
    etag = (await street.ask("a", "GET", path)).headers["etag"]
    for given in (etag, "*"):
        assert (await street.ask("a", "GET", path, **{"if-none-match": given})).status_code == 304
        assert (await street.ask("b", "GET", path, **{"if-none-match": given})).status_code == 404


async def test_public_adapters_may_be_asked_and_not_changed(street: Street) -> None:
    """By the owner's leave, under the owner's name; taking it back takes it back."""
    await street.ask("a", "PATCH", f"/v1/adapters/{PRIVATE}", {"public": True})
    ask = ("POST", f"/v1/tasks/{{a}}:{PRIVATE}/predict", {"inputs": "good"})
    assert (await street.ask("b", *ask)).status_code == 200
    live = await street.ask("b", "POST", f"/v1/tasks/{{a}}:{PRIVATE}@live/predict", {"inputs": "good"})
    assert (live.status_code, live.headers["x-adapter-version"]) == (200, "1")
    assert (await street.ask("b", "GET", "/v1/adapters")).json()["adapters"] == []
    for method, path, body in NAMED:
        answer = await street.ask("b", method, str(put_in(path, name=PRIVATE)), body)
        assert answer.status_code == 404, (method, path)
    await street.ask("a", "PATCH", f"/v1/adapters/{PRIVATE}", {"public": False})
    assert (await street.ask("b", *ask)).status_code == 404


async def test_anothers_quota_is_no_ones_business(street: Street) -> None:
    """A tenant that has used up its own neither slows down nor shows up at others."""
    await street.ask("operator", "PUT", "/v1/tenants/{a}", {"requests_per_second": 0.001})
    assert (await street.ask("a", "GET", "/info")).status_code == 200
    assert (await street.ask("a", "GET", "/info")).status_code == 429
    answer = await street.ask("b", "GET", "/info")
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("ratelimit")]


async def test_the_log_names_the_key_that_did_it(street: Street) -> None:
    """And the tenant whose adapter it was; what a key is not allowed to do is not there."""
    await street.ask("b", "DELETE", f"/v1/adapters/{PRIVATE}")
    await street.ask("a", "DELETE", f"/v1/adapters/{PRIVATE}")
    logs = [await street.ask("operator", "GET", f"/v1/audit?tenant={{{tenant}}}") for tenant in ("a", "b")]
    newest, *_ = logs[0].json()["records"]
    actor = f"key:{street.keys['a'].removeprefix('plt_').partition('_')[0]}"
    assert (newest["actor"], newest["action"], newest["subject"]) == (actor, "delete_adapter", PRIVATE)
    assert all(one["subject"] != PRIVATE for one in logs[1].json()["records"])


async def test_requests_are_counted_for_their_tenant(street: Street) -> None:
    await street.ask("a", "POST", f"/v1/tasks/{PRIVATE}/predict", {"inputs": "good"})
    async with make_client(street.running.app) as stranger:
        await stranger.get("/v1/adapters")
    page = (await street.ask("operator", "GET", "/metrics")).text
    assert f'peltier_requests_total{{code="200",tenant="{street.names["a"]}"}} 2.0' in page
    assert 'peltier_requests_total{code="401",tenant="_nobody"}' in page
    assert f'peltier_queue_tokens{{tenant="{street.names["a"]}"}} 0.0' in page


async def num_calls(work: Awaitable[httpx2.Response]) -> int:
    """How many functions this thread enters until a request is answered with 404."""
    count = 0

    def see(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        answer = await work
    finally:
        sys.setprofile(None)
    assert answer.status_code == 404
    return count


async def test_existing_takes_as_many_steps_as_missing(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither reads the store or the queue: the least number of calls of some requests is the same but for a few."""
    service, calls = street.running.service, dict[str, list[int]]()
    for part, method in ((service.store.blobs, "load"), (service.batcher, "put")):
        monkeypatch.setattr(part, method, None)
    # Some requests meet the periodic work of the server in the same event loop; hardly ten in ten.
    for name in (PRIVATE, MISSING) * 10:
        asked = street.ask("b", "POST", f"/v1/tasks/{{a}}:{name}/predict", {"inputs": "good"})
        calls.setdefault(name, []).append(await num_calls(asked))
    private, missing = (min(counts) for counts in calls.values())
    assert abs(private - missing) < 10


async def test_rows_of_one_text_share_blocks_within_the_callers_tenant(street, bert, make_artifact, monkeypatch):
    """With a public adapter that changes only the last block, a tenant's two rows are one row until then. Those of two
    tenants are apart in every block of one batch, so that no answer comes earlier because another sent the text."""
    last = make_artifact(bert, "lora", overrides={"first_block": "2"})
    assert (await street.upload("a", "last", last)).status_code == 201
    await street.ask("a", "PATCH", "/v1/adapters/last", {"public": True})
    rows, compute = list[Row](), isolation.forward

    def note(backbone: Backbone, batch: Sequence[Row], **options: Any) -> Any:
        rows.extend(batch)
        return compute(backbone, batch, **options)

    monkeypatch.setattr(isolation, "forward", note)
    for tenant, task in (("a", "last"), ("b", "{a}:last")):
        answer = await street.ask(tenant, "POST", "/v1/predict", {"tasks": [task, task], "input": "good"})
        assert answer.json()["results"][1]["predictions"], answer.text
    stages = plan_stages(rows, bert.config.num_layers)
    assert [stage.layers for stage in stages] == [range(2), range(2, 3)]
    assert [stage.places for stage in stages] == [[0, 0, 1, 1], [0, 1, 2, 3]]
