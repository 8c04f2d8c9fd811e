"""Bounds of connections, requests and their bodies."""

import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from unittest.mock import patch

import grpc
import httpx2
from peltier_client.protocol.predict import MAX_PRIORITY, MAX_TIMEOUT_MS, Parameters
from peltier_server.extensions.grpc import server as grpc_server
from peltier_server.extensions.settings import SETTINGS
from peltier_server.fairness.shared_bound import SharedBound
from peltier_server.http import connection, list_pages
from peltier_server.http import incoming as pace
from peltier_server.inference.answer_size import AnswerForm, measure_answer

from tests.server.extensions.grpc.grpc_port import PREFACE, grpc_of, grpc_port
from tests.server.limits.probe import Met, probe
from tests.server.limits.servers import KEY, STALL_SECONDS, TEXT, Servers, Small

_CLOSED = "the connection is closed"
_PREDICT = "/v1/tasks/demo/predict"
_JSON = {"content-type": "application/json"}


def _request(line: str, *headers: str) -> bytes:
    return "\r\n".join((f"{line} HTTP/1.1", "host: a", f"authorization: Bearer {KEY}", *headers, "\r\n")).encode()


@probe("connections, of all callers; probes (`/health`, `/ready` and the like) are answered on 64 more")
def _(servers: Servers) -> Met:
    with servers.start("bert", max_connections=1) as other, patch.object(connection, "_SURPLUS_SECONDS", 60):
        assert httpx2.get(f"{other.listening.url}/health", timeout=60).status_code == 200
        return httpx2.get(f"{other.listening.url}/info", timeout=60)


@probe("connections beyond these", "peltier_server.http.connection.MAX_SURPLUS")
def _(servers: Servers) -> Met:
    with servers.start("bert", max_connections=1) as other, ExitStack() as held:
        for _ in range(64):
            held.enter_context(other.connect())
        assert other.hears(b"") == b""
    return _CLOSED


def _ask_grpc(server: Small, method: str = "ServerMetadata") -> str:
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port(server.listening.app)}") as channel:
        call = channel.stream_unary(f"/inference.GRPCInferenceService/{method}")
        silent = iter(threading.Event().wait, None)
        error = call.future(silent, metadata=(("authorization", f"Bearer {KEY}"),), timeout=60).exception(60)
    return f"gRPC's own `{error.code().name}`"


def _closed_by_grpc(server: Small, begin: bytes) -> Met:
    with socket.create_connection(("127.0.0.1", grpc_port(server.listening.app)), timeout=60) as connection:
        connection.sendall(begin)
        while connection.recv(1024):
            pass
    return _CLOSED


@probe(
    "calls over gRPC at a time, of callers with a key; three quarters of them of one tenant or on one connection",
    "peltier_server.extensions.grpc.server._MAX_CALLS",
)
def _(servers: Servers) -> Met:
    with patch.object(grpc_server, "_MAX_CALLS", 2), servers.start("bert", grpc_port=0) as other:
        held: SharedBound = grpc_of(other.listening.app)._calls
        other.listening.loop.call_soon_threadsafe(held.add, "another", 1)
        return _ask_grpc(other)


@probe(
    "probes over gRPC at a time (`ServerLive`, `ServerReady`); three quarters of them from one address",
    "peltier_server.extensions.grpc.server._MAX_PROBES",
)
def _(servers: Servers) -> Met:
    with patch.object(grpc_server, "_MAX_PROBES", 0), servers.start("bert", grpc_port=0) as other:
        return _ask_grpc(other, "ServerLive")


@probe("time for the message of a call over gRPC, and for its answer to be taken")
def _(servers: Servers) -> Met:
    with servers.start("bert", grpc_port=0, stall_seconds=STALL_SECONDS) as other:
        return _ask_grpc(other)


@probe("connections over gRPC", "peltier_server.extensions.grpc.settings.MAX_CONNECTIONS")
def _(servers: Servers) -> Met:
    with patch.object(grpc_server, "MAX_CONNECTIONS", 1), servers.start("bert", grpc_port=0) as other:
        port = grpc_port(other.listening.app)
        with grpc.insecure_channel(f"127.0.0.1:{port}") as first:
            grpc.channel_ready_future(first).result(60)
            with socket.create_connection(("127.0.0.1", port), timeout=60) as further, suppress(ConnectionError):
                further.sendall(PREFACE)
                assert further.recv(1) == b""
    return _CLOSED


@probe("time for a connection over gRPC to begin", "peltier_server.extensions.grpc.server._HANDSHAKE_SECONDS")
def _(servers: Servers) -> Met:
    with servers.start("bert", grpc_port=0, stall_seconds=STALL_SECONDS) as other:
        return _closed_by_grpc(other, b"")


@probe("time that a connection over gRPC has no calls", "peltier_server.extensions.grpc.server._IDLE_SECONDS")
def _(servers: Servers) -> Met:
    with patch.object(grpc_server, "_IDLE_SECONDS", 0.2), servers.start("bert", grpc_port=0) as other:
        return _closed_by_grpc(other, PREFACE)


@probe(
    "age of a connection over gRPC; its calls have 5 minutes more",
    "peltier_server.extensions.grpc.server._MAX_AGE_SECONDS",
)
def _(servers: Servers) -> Met:
    with (
        patch.multiple(grpc_server, _MAX_AGE_SECONDS=0.2, _GRACE_SECONDS=0.1),
        servers.start("bert", grpc_port=0) as other,
    ):
        return _closed_by_grpc(other, PREFACE)


@probe("size of a request's line and headers", "peltier_server.http.connection.MAX_HEAD_BYTES")
def _(servers: Servers) -> Met:
    assert servers.bert.hears(b"GET /health HTTP/1.1\r\nx: ", *[b"a" * 65536] * 2) == b""
    return _CLOSED


@probe("time for a request's line and headers")
def _(servers: Servers) -> Met:
    assert servers.hasty.hears(b"GET /health HTTP/1.1\r\n") == b""
    return _CLOSED


@probe("time that a connection is idle between requests")
def _(servers: Servers) -> Met:
    assert servers.hasty.hears(_request("GET /health")).startswith(b"HTTP/1.1 200")
    return _CLOSED


@probe("requests sent ahead on a connection", "peltier_server.http.connection._MAX_PIPELINED")
def _(servers: Servers) -> Met:
    assert servers.bert.hears(_request("GET /health") * 100).count(b"HTTP/1.1 200") < 100
    # Without a header each, too.
    assert servers.bert.hears(b"GET /health HTTP/1.1\r\n\r\n" * 100).count(b"HTTP/1.1 200") < 100
    return _CLOSED


probe("time that a body stands still")(lambda servers: _sent_slowly(servers.hasty, b'{"inputs": ', pauses=1))
probe("slowest pace of a body, bytes a second", "peltier_server.http.incoming.MIN_BYTES_PER_SECOND")(
    lambda servers: _sent_slowly(servers.hasty, b'{"inputs": ', pauses=8)
)


@probe("time for a caller to read 16 KiB/s of its answer")
def _(servers: Servers) -> Met:
    script = servers.bert.client.get("/docs/swagger-ui-bundle.js").content
    heard = servers.hasty.hears(_request("GET /docs/swagger-ui-bundle.js") * 10, once_closed=True)
    assert 0 < len(heard) < 10 * len(script)
    return _CLOSED


@probe("time to read the rest of a body after an early answer", "peltier_server.http.incoming._MAX_LINGER_SECONDS")
def _(servers: Servers) -> Met:
    with patch.object(pace, "_MAX_LINGER_SECONDS", 0.2):
        heard = servers.bert.hears(_request("POST /v1/nowhere", "content-length: 100"))
    assert heard.startswith(b"HTTP/1.1 404")
    return _CLOSED


probe("size of a JSON body")(lambda servers: servers.bert.predict("a" * 200_000))
probe(
    "strings, commas and brackets of a JSON body (64 for each of `max_inputs` if that is more)",
    "peltier_server.http.bodies._MIN_TOKENS",
)(lambda servers: servers.bert.client.post(_PREDICT, content=b"[" * 65_537, headers=_JSON))
probe("inputs of a request")(lambda servers: servers.bert.predict([TEXT] * 9))
probe("items of a mixed request")(
    lambda servers: servers.bert.client.post("/v1/predict", json={"requests": [{"task": "demo", "input": TEXT}] * 9})
)
probe("tasks of one input, with the members of groups")(
    lambda servers: servers.bert.client.post("/v1/predict", json={"tasks": ["demo*"] * 9, "input": TEXT})
)


@probe("rows of a comparison at `/v1/compare`", "peltier_client.protocol.comparison.MAX_COMPARED_ROWS")
def _(servers: Servers) -> Met:
    side = {"task": "demo", "answers": ["a"]}
    body = {"task_type": "text2text", "labels": ["a"] * 10_001, "first": side, "second": side}
    return servers.bert.client.post("/v1/compare", json=body)


@probe("bytes of an answer by its values, known before anything is computed; a mixed request's parts share them")
def _(servers: Servers) -> Met:
    with servers.start("bert", max_answer_bytes=_answer_bytes(servers, top_k=1)) as other:
        assert other.predict([TEXT] * 8, top_k=1).status_code == 200
        return other.predict([TEXT] * 8)


@probe("bytes of the vectors in the answer, known before they are computed")
def _(servers: Servers) -> Met:
    with servers.start("bert", max_answer_bytes=8192) as other:
        data = servers.make_artifact(servers.backbones["bert"], "bitfit", task_type="multi-vector-embedding")
        other.upload(data, name="vectors").raise_for_status()
        small = replace(other, task="vectors")
        assert small.predict([TEXT]).status_code == 200
        return small.predict([TEXT * 4] * 8)


@probe("bytes of an answer as its labels and texts are found and written")
def _(servers: Servers) -> Met:
    data = servers.make_artifact(servers.backbones["bert"], "bitfit", task_type="ranking", inputs="pair")
    servers.terse.upload(data, name="rank").raise_for_status()
    body = {"model": "rank", "query": TEXT, "documents": ["x" * 1600], "return_documents": True}
    return servers.terse.client.post("/v1/rerank", json=body)


@probe("windows of the long texts of a request")
def _(servers: Servers) -> Met:
    tags, two = _tagger(servers, servers.wide), "bad " * 100
    assert tags.predict([two, *["bad"] * 7], stride=0).status_code == 200
    return tags.predict([two, two], stride=0)


probe("tokens that windows of a text share")(lambda servers: _tagger(servers, servers.wide).predict(TEXT, stride=33))


def _tagger(servers: Servers, other: Small) -> Small:
    tags = [f"B-{number}" for number in range(8)]
    data = servers.make_artifact(servers.backbones["bert"], "bitfit", labels=tags, task_type="token-classification")
    other.upload(data, name="tags").raise_for_status()
    return replace(other, task="tags")


def _answer_bytes(servers: Servers, **parameters: object) -> int:
    service = servers.bert.service
    entry = service.catalog.get("default", "demo").newest
    form = AnswerForm(entry.task, Parameters.model_validate(parameters), top_k=parameters.get("top_k"))
    return measure_answer(entry, 8, form, None, service.backbone.config.num_layers).num_bytes


@probe("scores of an input where the caller gives no `top_k`")
def _(servers: Servers) -> Met:
    with servers.start("bert", default_top_k=1) as other:
        assert len(other.predict().json()["predictions"][0]["scores"]) == 1
    return "the best are answered"


probe("tokens of an input")(lambda servers: servers.bert.predict("bad " * 64, truncate=False))
probe("characters of a text that are read")(lambda servers: servers.bert.predict("g" * 70_000, truncate=False))
probe("keys of an object in a JSON body", "peltier_server.http.bodies._MAX_KEYS")(
    lambda servers: servers.bert.client.post(_PREDICT, json={f"key-{number}": 0 for number in range(1001)})
)
probe("digits of a whole number in a JSON body", "peltier_server.http.bodies._MAX_DIGITS")(
    lambda servers: servers.bert.client.post(_PREDICT, content=b"9" * 41, headers=_JSON)
)


@probe(
    "fields of a message over gRPC (3 more for each of `max_inputs`)",
    "peltier_server.extensions.grpc.server._MIN_FIELDS",
)
def _(servers: Servers) -> Met:
    with (
        servers.start("bert", grpc_port=0) as other,
        grpc.insecure_channel(f"127.0.0.1:{grpc_port(other.listening.app)}") as channel,
    ):
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        metadata = (("authorization", f"Bearer {KEY}"),)
        error = call.future(b"\x32\x00" * 5000, metadata=metadata, timeout=60).exception(60)
    assert "the message has more than" in error.details()
    return f"gRPC's own `{error.code().name}`"


@probe("mistakes in a JSON body that are named", "peltier_server.http.bodies._MAX_MISTAKES")
def _(servers: Servers) -> Met:
    item = {f"key-{number}": 0 for number in range(200)}
    return servers.bert.client.post("/v1/predict", json={"requests": [item] * 8})


@probe(
    "items of mixed requests, and prompts of completions with `stop`, in progress at once, of one tenant",
    "peltier_server.fairness.preparation.MAX_ITEMS_BEGUN",
)
def _(servers: Servers) -> Met:
    batcher = servers.wide.service.batcher
    with servers.wide.held() as send:
        requests = [{"task": "demo", "input": "bad"}] * 300
        call = send(servers.wide.client.post, "/v1/predict", json={"requests": requests})
        while batcher.queued_tokens < 256 * 3:
            time.sleep(0.001)
        assert batcher.queued_tokens == 256 * 3
        assert not call.done()
    return "other items wait"


@probe("bytes of request bodies in progress, of all tenants")
def _(servers: Servers) -> Met:
    with _taken(servers.bert, "body_bytes"):
        return servers.bert.predict("a" * 100_000)


probe("bytes of request bodies in progress, of one tenant", 3 * SETTINGS["max_pending_bytes"].default // 4)(
    lambda servers: _beyond_its_share(servers.bert, "body_bytes")
)


@probe(
    "bytes of computed and unread answers, of all tenants; an answer below 64 KiB does not count, a download counts "
    "512 KiB"
)
def _(servers: Servers) -> Met:
    with _taken(servers.wide, "answer_bytes"):
        return servers.wide.predict([TEXT] * 1000)


probe("bytes of computed and unread answers, of one tenant", 3 * SETTINGS["max_pending_answer_bytes"].default // 4)(
    lambda servers: _beyond_its_share(servers.wide, "answer_bytes", [TEXT] * 1000)
)


@probe("inputs in progress, of all tenants")
def _(servers: Servers) -> Met:
    with _taken(servers.bert, "inputs"):
        return servers.bert.predict([TEXT] * 8)


probe("inputs in progress, of one tenant", 3 * SETTINGS["max_pending_inputs"].default // 4)(
    lambda servers: _beyond_its_share(servers.bert, "inputs")
)
probe("`timeout_ms`", "peltier_client.protocol.predict.MAX_TIMEOUT_MS")(
    lambda servers: servers.bert.predict(timeout_ms=MAX_TIMEOUT_MS + 1)
)


@probe("time until `timeout_ms` has passed")
def _(servers: Servers) -> Met:
    with servers.bert.held():
        return servers.bert.predict(timeout_ms=50)


probe("`priority`", "peltier_client.protocol.predict.MAX_PRIORITY")(
    lambda servers: servers.bert.predict(priority=MAX_PRIORITY + 1)
)


@probe("reasons in an answer's `details`", "peltier_server.errors._MAX_SHOWN_REASONS")
def _(servers: Servers) -> Met:
    body = {"inputs": TEXT, **{f"key-{number}": 0 for number in range(200)}}
    answer = servers.bert.client.post(_PREDICT, content=json.dumps(body), headers=_JSON)
    assert len(answer.json()["error"]["details"]) == 100
    return answer


@probe(
    "entries on a page of adapters, versions, trainings, files, keys, tenants or the audit log",
    "peltier_server.http.application.MAX_PAGE",
)
def _(servers: Servers) -> Met:
    lists = ("adapters", "adapters/demo/versions", "trainings", "files", "keys", "tenants", "audit")
    answers = [servers.bert.client.get(f"/v1/{path}", params={"limit": 1001}) for path in lists]
    assert {answer.text for answer in answers} == {answers[0].text}
    return answers[0]


@probe(
    "bytes of entries on such a page and on one of batches or jobs, after which it ends",
    "peltier_server.http.list_pages.MAX_PAGE_BYTES",
)
def _(servers: Servers) -> Met:
    with patch.object(list_pages, "MAX_PAGE_BYTES", 1):
        page = servers.bert.client.get("/v1/audit").json()
    assert (len(page["records"]), page["next_cursor"]) == (1, str(page["records"][0]["id"]))
    return "the other entries are on the next page"


@probe("characters of an `Idempotency-Key`", 255)
def _(servers: Servers) -> Met:
    headers = {"idempotency-key": "k" * 256}
    rows = [{"text": "a", "label": "b"}]
    return servers.bert.client.post("/v1/trainings", json={"task": "demo", "examples": rows}, headers=headers)


probe("models on a page of `GET /v1/models`", "peltier_server.protocols.openai.routes.MAX_MODELS")(
    lambda servers: servers.bert.client.get("/v1/models", params={"limit": 10_001})
)


@probe(
    "characters of an actor or an action to filter the audit log by",
    "peltier_server.routes.administration._MAX_WORD_LEN",
)
def _(servers: Servers) -> Met:
    answers = [servers.bert.client.get("/v1/audit", params={name: 321 * "x"}) for name in ("action", "actor")]
    assert answers[0].status_code == 422
    return answers[1]


@contextmanager
def _taken(small: Small, what: str) -> Iterator[None]:
    """All but a little is in progress until the block ends, of several tenants."""
    bound: SharedBound = getattr(small.listening.app.state.preparation, what)
    with ExitStack() as held:
        for number in itertools.count():
            rest = bound._shares.rest(0)
            if rest < 8:
                yield
                return
            held.enter_context(bound.hold(f"other-{number}", 3 * rest // 4))


def _beyond_its_share(small: Small, what: str, inputs: object = TEXT) -> Met:
    bound: SharedBound = getattr(small.listening.app.state.preparation, what)
    with small.tenant() as tenant, bound.hold(tenant.name, bound.max_of_one):
        return tenant.predict(inputs)


def _sent_slowly(small: Small, body: bytes, *, pauses: int) -> httpx2.Response:
    with ExitStack() as opened:
        opened.enter_context(small.standing_still())

        def pieces() -> Iterator[bytes]:
            opened.close()
            yield body
            for _ in range(pauses):
                time.sleep(2 * STALL_SECONDS / pauses)
                yield b" "

        return small.client.post(_PREDICT, content=pieces(), headers=_JSON)
