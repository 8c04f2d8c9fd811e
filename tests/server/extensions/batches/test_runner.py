"""Batches, by OpenAI's client over a real socket, and by servers that end in the middle of one."""

import errno
import itertools
import json
import os
import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx2
import openai
import pytest
from openai.types import Batch
from peltier_backbone.backbone import Backbone
from peltier_client import BatchNotFound, Client, Conflict
from peltier_server.extensions.batches import runner
from peltier_server.extensions.batches.lines import BatchRequests
from peltier_server.extensions.batches.runner import BatchRunner
from peltier_server.http.app_call import AppAnswer, AppCall
from peltier_store.registry.extensions.queue import MAX_ATTEMPTS
from peltier_store.registry.extensions.queue_records import StoredBatch
from starlette.types import ASGIApp

from tests.server.conftest import Listen, Listening, until

TEXTS = ["a good film", "the plot was not very good", "bad"]
_FINAL = {"completed", "failed", "cancelled", "expired"}


ADMIN = "plt_of-the-operator"
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def listening(listen: Listen, bert: Backbone, make_artifact: Callable[..., bytes]) -> Iterator[Listening]:
    """With a ranking and a classification beside the backbone's own embeddings."""
    made = {
        "rank": make_artifact(bert, "lora", task_type="ranking", inputs="pair"),
        "film": make_artifact(bert, "compacter"),
    }
    with listen(max_batch_lines=600, admin_key=ADMIN) as started:
        for name, data in made.items():
            send(started, "POST", "/v1/adapters", files={"file": data}, data={"name": name})
        yield started


def send(listening: Listening, method: str, path: str, **body: Any) -> Any:
    """A call of the operator."""
    headers = {"authorization": f"Bearer {ADMIN}"}
    answer = httpx2.request(method, f"{listening.url}{path}", headers=headers, timeout=60, **body)
    return answer.raise_for_status().json()


@pytest.fixture
def client(listening: Listening) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{listening.url}/v1", api_key=ADMIN, max_retries=0) as opened:
        yield opened


def line(number: int, body: object, url: str = "/v1/embeddings", **given: object) -> dict[str, object]:
    return {"custom_id": f"row-{number}", "method": "POST", "url": url, "body": body, **given}


def embeddings(count: int) -> list[dict[str, object]]:
    return [line(n, {"model": "_backbone", "input": f"{n} {TEXTS[n % 3]}", "dimensions": 4}) for n in range(count)]


def begin(client: openai.OpenAI, lines: Sequence[object], endpoint: Any = "/v1/embeddings", **given: Any) -> Batch:
    """A batch of these requests, or of the whole text of a file."""
    data = lines if isinstance(lines, str) else "".join(f"{json.dumps(one)}\n" for one in lines)
    file = client.files.create(file=("rows.jsonl", data.encode()), purpose="batch").id
    return client.batches.create(input_file_id=file, endpoint=endpoint, completion_window="24h", **given)


def ended(client: openai.OpenAI, batch: Batch) -> Batch:
    """The batch once it has ended; fails after a minute."""
    for _ in range(600):
        found = client.batches.retrieve(batch.id)
        if found.status in _FINAL:
            return found
        time.sleep(0.1)
    raise AssertionError(f"the batch is {found.status}")


@pytest.fixture
def go_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Batches stop after a first part of eight lines until this is set."""
    event, add_part = threading.Event(), BatchRunner._add_part

    async def wait(self: BatchRunner, batch: StoredBatch, requests: BatchRequests) -> None:
        if batch.num_done:
            await until(event.is_set)
        await add_part(self, batch, requests)

    monkeypatch.setattr(runner, "_PART_LINES", 8)
    monkeypatch.setattr(BatchRunner, "_add_part", wait)
    yield event
    event.set()


def rows(client: openai.OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id is not None
    return [json.loads(row) for row in client.files.content(file_id).text.splitlines()]


def test_each_answer_is_that_of_the_route(client: openai.OpenAI) -> None:
    """In the order of the lines, with the caller's ids; wrong requests are in the file of errors, and end nothing."""
    lines = [
        *embeddings(7),
        line(7, {"model": "none", "input": "bad"}),
        line(8, {"input": "bad"}),
        *embeddings(300)[9:],
    ]
    batch = begin(client, lines, metadata={"run": "1"})
    assert (batch.object, batch.status, batch.metadata) == ("batch", "validating", {"run": "1"})
    done = ended(client, batch)
    assert done.request_counts is not None
    assert (done.status, done.request_counts.to_dict()) == ("completed", {"total": 300, "completed": 298, "failed": 2})
    assert done.created_at <= (done.in_progress_at or 0) <= (done.finalizing_at or 0) <= (done.completed_at or 0)
    found = rows(client, done.output_file_id)
    assert [one["custom_id"] for one in found] == [f"row-{n}" for n in range(300) if n not in (7, 8)]
    direct = client.embeddings.create(model="_backbone", input="5 bad", dimensions=4, encoding_format="float")
    response = found[5]["response"]
    assert (response["status_code"], found[5]["error"]) == (200, None)
    assert response["body"]["data"][0]["embedding"] == pytest.approx(direct.data[0].embedding, abs=1e-6)
    wrong = rows(client, done.error_file_id)
    shown = [(one["custom_id"], one["response"]["status_code"], one["response"]["body"]["error"]) for one in wrong]
    assert [(own, status, error["code"]) for own, status, error in shown] == [
        ("row-7", 404, "model_not_found"), ("row-8", 400, "invalid_input"),
    ]  # fmt: skip
    assert client.files.retrieve(done.output_file_id or "").purpose == "batch_output"


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("/v1/rerank", {"model": "rank", "query": "good", "documents": TEXTS}),
        ("/v1/predict", {"requests": [{"task": "film", "input": "bad"}]}),
    ],
)
def test_other_endpoints_answer_too(client: openai.OpenAI, endpoint: str, body: object) -> None:
    done = ended(client, begin(client, [line(0, body, endpoint)], endpoint))
    (found,) = rows(client, done.output_file_id)
    assert len(found["response"]["body"]["results"]) in (1, 3)


@pytest.mark.parametrize(
    ("lines", "problems"),
    [
        (
            [line(0, {}), line(0, {}), line(1, {}, method="GET"), line(2, {}, "/v1/rerank"), line(3, [])],
            [
                ("duplicate_custom_id", 2, "line 2: custom_id is that of line 1 too"),
                ("invalid_method", 3, "line 3: method is 'GET'; it must be 'POST'"),
                (
                    "invalid_url",
                    4,
                    "line 4: url is '/v1/rerank'; it must be the endpoint of the batch, '/v1/embeddings'",
                ),
                ("invalid_request", 5, "line 5: body must be a JSON object"),
            ],
        ),
        (
            [line(0, {}, custom_id="x" * 513), line(1, {"stream": True})],
            [
                ("invalid_custom_id", 1, "line 1: custom_id must be a text of 1 to 512 characters"),
                ("invalid_request", 2, "line 2: body.stream is set; the answers of a batch are in a file"),
            ],
        ),
    ],
)
def test_a_batch_with_invalid_lines_fails(client, lines, problems):
    """Before anything is computed, with each line and the rule that it breaks."""
    done = ended(client, begin(client, lines))
    assert (done.status, done.output_file_id) == ("failed", None)
    assert done.failed_at is not None
    assert done.errors is not None
    assert [(one.code, one.line, one.message) for one in done.errors.data or ()] == problems


def test_wrong_batches_are_refused(client: openai.OpenAI) -> None:
    data = b'{"text": "good", "label": "yes"}\n'
    examples = client.files.create(file=("a.jsonl", data), purpose="fine-tune").id
    with pytest.raises(openai.BadRequestError, match=r"purpose of the file .* is 'fine-tune', not 'batch'"):
        client.batches.create(input_file_id=examples, endpoint="/v1/embeddings", completion_window="24h")
    with pytest.raises(openai.BadRequestError, match="the file has 601 requests; a batch may have 600"):
        begin(client, embeddings(601))
    with pytest.raises(openai.BadRequestError, match="endpoint is '/v1/chat/completions'"):
        begin(client, embeddings(1), "/v1/chat/completions")
    with pytest.raises(openai.NotFoundError):
        client.batches.create(input_file_id="file-1", endpoint="/v1/embeddings", completion_window="24h")
    with pytest.raises(openai.NotFoundError, match="has no batch 'batch_1'"):
        client.batches.retrieve("batch_1")
    with pytest.raises(openai.UnprocessableEntityError, match=r"that of a file for a batch must end in .jsonl"):
        client.files.create(file=("a.csv", b"a,b\n1,2\n"), purpose="batch")


def test_pages_have_the_newest_batches_first(client: openai.OpenAI) -> None:
    made = [begin(client, embeddings(1)).id for _ in range(3)]
    assert [batch.id for _, batch in zip(made, client.batches.list(limit=1), strict=False)] == made[::-1]


def test_a_cancelled_batch_keeps_its_results(client: openai.OpenAI, go_on: threading.Event) -> None:
    """Those until then, in its files; a file is needed until its batch has ended."""
    batch = begin(client, embeddings(600))
    file = batch.input_file_id
    while not (counts := client.batches.retrieve(batch.id).request_counts) or not counts.completed:
        time.sleep(0.01)
    with pytest.raises(openai.ConflictError, match="needed by the batch"):
        client.files.delete(file)
    assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    go_on.set()
    done = ended(client, batch)
    assert (done.status, done.cancelled_at is not None) == ("cancelled", True)
    assert done.request_counts is not None
    assert 0 < done.request_counts.completed < 600
    found = [one["custom_id"] for one in rows(client, done.output_file_id)]
    assert found == [f"row-{n}" for n in range(done.request_counts.completed)]
    with pytest.raises(openai.ConflictError, match="so it cannot be cancelled"):
        client.batches.cancel(ended(client, begin(client, embeddings(1))).id)
    assert client.files.delete(file).deleted
    assert client.files.delete(done.output_file_id or "").deleted


@pytest.mark.slow
def test_a_batch_waits_for_the_quotas_of_its_tenant(listening: Listening) -> None:
    """Refused requests are sent again; a key with the scope `predict` alone has no files for trainings."""
    send(listening, "POST", "/v1/tenants", json={"name": "small", "quotas": {"max_concurrent_requests": 3}})
    key = send(listening, "POST", "/v1/keys", json={"tenant": "small", "scopes": ["predict"]})["key"]
    with openai.OpenAI(base_url=f"{listening.url}/v1", api_key=key) as client:
        batch = begin(client, embeddings(7))
        found = rows(client, ended(client, batch).output_file_id)
        assert [one["custom_id"] for one in found] == [f"row-{n}" for n in range(7)]
        assert {file.purpose for file in client.files.list()} == {"batch", "batch_output"}
        with pytest.raises(openai.PermissionDeniedError, match="this needs the scope 'train'"):
            client.files.create(file=("a.jsonl", b'{"a": 1}\n'), purpose="fine-tune")
    trainer = send(listening, "POST", "/v1/keys", json={"tenant": "small", "scopes": ["train"]})["key"]
    with openai.OpenAI(base_url=f"{listening.url}/v1", api_key=trainer) as client:
        assert list(client.files.list()) == []
        with pytest.raises(openai.NotFoundError):
            client.files.content(batch.input_file_id)
        with pytest.raises(openai.PermissionDeniedError, match="this needs the scope 'predict'"):
            client.batches.retrieve(batch.id)


@pytest.fixture
def spent(listening: Listening) -> Iterator[openai.OpenAI]:
    """A caller whose tenant may have one or two texts answered in ten seconds."""
    name = f"spent-{next(_NUMBERS)}"
    send(listening, "POST", "/v1/tenants", json={"name": name, "quotas": {"tokens_per_second": 1}})
    key = send(listening, "POST", "/v1/keys", json={"tenant": name, "scopes": ["predict"]})["key"]
    with openai.OpenAI(base_url=f"{listening.url}/v1", api_key=key, max_retries=0) as opened:
        yield opened


def expire(listening: Listening, batch: Batch) -> None:
    """As a clock does that jumps ahead."""
    path = listening.service.settings.store.store / "registry.db"  # type: ignore[operator]
    with sqlite3.connect(path, timeout=60) as connection:
        connection.execute("UPDATE batches SET expires_at = created_at WHERE id = ?", [batch.id])
    connection.close()


def test_a_batch_that_waits_for_a_quota_holds_up_no_other(client, spent, monkeypatch):
    """Its turn ends with the first request that has to wait, and its next one begins when that may be sent again."""
    turns, look = [], BatchRunner._take_turn

    async def take_turn(self: BatchRunner, batch: StoredBatch) -> None:
        turns.append(batch.id)
        await look(self, batch)

    monkeypatch.setattr(BatchRunner, "_take_turn", take_turn)
    waiting = begin(spent, embeddings(5))
    others = [ended(client, begin(client, embeddings(2))).status for _ in range(3)]
    assert (others, spent.batches.retrieve(waiting.id).status) == (["completed"] * 3, "in_progress")
    assert turns.count(waiting.id) <= 3
    spent.batches.cancel(waiting.id)


def test_an_expired_batch_keeps_its_results(spent, listening, monkeypatch):
    """It ends when no request could be answered for an hour; each request that is left has an error."""
    monkeypatch.setattr(runner, "_EXPIRY_SECONDS", 0.0)
    batch = begin(spent, embeddings(5))
    expire(listening, batch)
    done = ended(spent, batch)
    assert (done.status, done.expired_at is not None) == ("expired", True)
    wrong = rows(spent, done.error_file_id)
    completed = 5 - len(wrong)
    assert [one["custom_id"] for one in wrong] == [f"row-{n}" for n in range(completed, 5)]
    assert {one["error"]["code"] for one in wrong} == {"batch_expired"}


def test_a_batch_that_goes_on_does_not_expire(client, listening, go_on):
    """So a clock that jumps ends no batch."""
    batch = begin(client, embeddings(20))
    expire(listening, batch)
    go_on.set()
    assert ended(client, batch).status == "completed"


@pytest.mark.parametrize(("depth", "state"), [(150, "completed"), (250, "failed"), (970, "failed")])
def test_a_line_that_is_nested_deeply_ends_its_batch(client: openai.OpenAI, depth: int, state: str) -> None:
    """As invalid JSON, unless the parser of the routes reads it."""
    data = json.dumps(line(0, {})).replace("{}", '{"a":' * depth + "1" + "}" * depth)
    assert ended(client, begin(client, f"{data}\n")).status == state


def test_a_batch_does_not_expire_while_other_servers_answer_it(spent, listening, monkeypatch):
    """Although this one has had no result for two hours."""
    waited, wait = threading.Event(), BatchRunner._wait

    async def long_ago(self: BatchRunner, batch: StoredBatch, requests: BatchRequests, pause: float) -> None:
        self._fruitless[batch.id] = time.monotonic() - 7200, batch.num_done - 1
        await wait(self, batch, requests, pause)
        waited.set()

    monkeypatch.setattr(BatchRunner, "_wait", long_ago)
    batch = begin(spent, embeddings(5))
    expire(listening, batch)
    assert waited.wait(30)
    assert spent.batches.cancel(batch.id).status in ("cancelling", "cancelled")


def test_no_answer_is_computed_twice(client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those after a request that has to wait are kept for the next turn."""
    sent, send_call = Counter[str](), AppCall.send

    async def refuse_once(self: AppCall, app: ASGIApp) -> AppAnswer:
        number = self.headers["x-request-id"].rpartition("-")[2]
        sent[number] += 1
        if number == "3" and sent[number] == 1:
            return AppAnswer(429, {"retry-after": "0.01"}, b"{}")
        return await send_call(self, app)

    monkeypatch.setattr(AppCall, "send", refuse_once)
    done = ended(client, begin(client, embeddings(12)))
    assert sent == {str(number): 2 if number == 3 else 1 for number in range(12)}
    assert [one["custom_id"] for one in rows(client, done.output_file_id)] == [f"row-{n}" for n in range(12)]


def test_a_full_disk_only_delays_batches(client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that cannot keep its results is no end of a server, of which there may be five."""
    monkeypatch.setattr(runner, "_LOOK_SECONDS", 0.01)
    full, write = iter(range(MAX_ATTEMPTS + 1)), os.pwrite

    def write_or_fail(*given: Any) -> int:
        if next(full, None) is not None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*given)

    monkeypatch.setattr(os, "pwrite", write_or_fail)
    assert ended(client, begin(client, embeddings(1))).status == "completed"


def test_a_mark_at_the_start_of_a_file_is_not_read(client: openai.OpenAI) -> None:
    """Programs of Windows write one."""
    assert ended(client, begin(client, f"\ufeff{json.dumps(embeddings(1)[0])}\n")).status == "completed"


def test_the_size_of_results_takes_no_memory(client, listening, monkeypatch):
    """They are in files from the first answer on; so are those of the whole batch at its end."""
    put, held = listening.service.store.blobs.put, list[type]()

    async def note(data: bytes | memoryview) -> str:
        held.append(type(data))
        return await put(data)

    monkeypatch.setattr(listening.service.store.blobs, "put", note)
    batch = begin(client, embeddings(5))
    ended(client, batch)
    assert held[1:] == [memoryview, memoryview]


def test_batches_are_queued_behind_live_requests(client: openai.OpenAI, listening: Listening) -> None:
    """As a tenant of their own, whose weight is small."""
    ended(client, begin(client, embeddings(2)))
    headers = {"authorization": f"Bearer {ADMIN}"}
    page = httpx2.get(f"{listening.url}/metrics", headers=headers, timeout=60).text
    assert 'peltier_tenant_rows_total{tenant="default (batches)"}' in page
    assert re.search(r'^peltier_stored_requests_total\{result="completed"\} [1-9]', page, re.MULTILINE)


def test_the_client_of_the_server_has_batches_too(listening: Listening) -> None:
    data = "".join(f"{json.dumps(one)}\n" for one in embeddings(3)).encode()
    with Client(listening.url, api_key=ADMIN) as client:
        file = client.files.create(data, "rows.jsonl", purpose="batch")
        batch = client.batches.create(file.id, "/v1/embeddings", {"run": "2"})
        while batch.status != "completed":
            batch = client.batches.get(batch.id)
        assert len(client.files.content(batch.output_file_id or "").splitlines()) == 3
        assert next(client.batches.list()).id == batch.id
        with pytest.raises(Conflict, match="so it cannot be cancelled"):
            client.batches.cancel(batch.id)
        with pytest.raises(BatchNotFound):
            client.batches.get("batch_1")


def test_completions_are_answered_on_a_t5(listen: Listen, t5: Backbone, make_artifact: Callable[..., bytes]) -> None:
    with listen(backbone=t5.name) as other:
        other.upload(make_artifact(t5, "lora", task_type="text2text"))
        with openai.OpenAI(base_url=f"{other.url}/v1", api_key="none", max_retries=0) as client:
            body = {"model": "demo", "prompt": "a good film", "max_tokens": 4, "temperature": 0}
            done = ended(client, begin(client, [line(0, body, "/v1/completions")], "/v1/completions"))
            (found,) = rows(client, done.output_file_id)
            direct = client.completions.create(**body)
        assert found["response"]["body"]["choices"][0]["text"] == direct.choices[0].text
