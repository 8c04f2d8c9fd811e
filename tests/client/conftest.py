"""A little server on a real socket that answers as the contract says, or as a test dictates."""

import hashlib
import json
import re
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from peltier_client import AsyncClient, Client

VERSION: dict[str, Any] = {
    "tenant": "default",
    "name": "sst2",
    "version": 1,
    "digest": f"sha256:{hashlib.sha256(b'artifact').hexdigest()}",
    "size_bytes": 8,
    "preset": "compacter",
    "created_at": "2026-11-21T00:00:00Z",
    "task": {"type": "classification", "labels": ["negative", "positive"], "inputs": "single", "max_length": 128},
    "metrics": {"accuracy": 0.87},
}

# What a stream of the task e2e says; line separators must not end an event.
PIECES = ["Aromi is ", "a café\u2028", "by the\n", "river."]


def adapter(name: str) -> dict[str, Any]:
    """An adapter of one version as it is listed."""
    return {"tenant": "default", "name": name, "num_versions": 1, "latest": {**VERSION, "name": name}}


def alias(versions: dict[str, float]) -> dict[str, Any]:
    """The alias live of sst2."""
    return {"alias": "live", "versions": versions, "created_at": "2026-11-21T00:00:00Z", "created_by": "key:abcdefgh"}


def answer_for(task: str, num_inputs: int) -> dict[str, Any]:
    """The contract's prediction body."""
    prediction: dict[str, Any] = {"label": "positive", "score": 0.98, "scores": {"negative": 0.02, "positive": 0.98}}
    if task.startswith("stsb"):
        prediction = {"value": 3.7}
    if task.startswith("tags"):
        prediction = {"labels": ["a", "b"], "scores": {"a": 0.9, "b": 0.8, "c": 0.1}}
    if task.startswith("ner"):
        prediction = {"entities": [{"start": 0, "end": 3, "text": "Ada", "label": "person", "score": 0.9}]}
    if task.startswith("vectors"):
        prediction = {"embedding": [0.5, -0.25, 0.125, 1e-9, 0.75, 0.5]}
    if task.startswith("qa"):
        found = ("", 0, 0) if task == "qa-none" else ("the Alps", 17, 25)
        prediction = {**dict(zip(("answer", "start", "end"), found, strict=True)), "score": 0.9}
    if task.startswith("e2e"):
        prediction = {"text": "".join(PIECES), "score": 0.7, "finish_reason": "stop"}
    usage = {"tokens": 12} | ({"completion_tokens": 4} if task.startswith("e2e") else {})
    if task.endswith("-short"):
        # A server that knows of truncation, with a task that takes less than whatever it is given.
        usage["truncated_inputs"] = num_inputs
    return {
        "task": task,
        "adapter": {key: VERSION[key] for key in ("tenant", "version", "digest", "preset")} | {"name": task},
        "predictions": [prediction] * num_inputs,
        "usage": usage,
        "timings_ms": {"queue": 0.4, "load": 0.0, "compute": 7.9, "total": 8.8},
        "batch": {"rows": 32, "adapters": 17},
    }


def events_for(task: str) -> "Answer":
    """The same, streamed."""
    pieces = [{"index": 0, "text": piece} for piece in PIECES]
    bodies = [json.dumps(one, ensure_ascii=False) for one in (*pieces, answer_for(task, 1))]
    return events(*(f"data: {body}" for body in bodies), "data: [DONE]")


def events(*given: str) -> "Answer":
    """Events as they are sent."""
    return Answer(200, "".join(f"{one}\n\n" for one in given).encode(), {"content-type": "text/event-stream"})


@dataclass
class Received:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    """A status, a body (bytes, or anything for JSON) and headers; `before` runs while the caller waits."""

    status: int = 200
    body: Any = b""
    headers: dict[str, str] = field(default_factory=dict)
    before: Callable[[], object] = lambda: None


def error(status: int, code: str, message: str = "why", **headers: str) -> Answer:
    """The contract's error body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, {"error": {"code": code, "message": message, "details": ["reason"]}}, named)


class PatientServer(ThreadingHTTPServer):
    """Many connections may arrive at once, and callers may hang up."""

    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class LittleServer:
    """Answers what is `planned` first, one request each, and by the contract after that."""

    def __init__(self) -> None:
        self.planned: deque[Answer] = deque()
        self.received: list[Received] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Received(self.command, self.path, headers, body)
                server.received.append(request)
                answer = server.planned.popleft() if server.planned else contract_answer(request)
                answer.before()
                content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
                self.send_response(answer.status)
                own = {"content-length": str(len(content)), "x-request-id": headers.get("x-request-id", "none")}
                for name, value in (own | answer.headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - http.server's names

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.http = PatientServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


def contract_answer(request: Received) -> Answer:
    """What a Peltier server with the adapter sst2 would answer."""
    path = request.path.partition("?")[0]
    if match := re.fullmatch("/v1/tasks/(.+)/predict", path):
        if json.loads(request.body).get("stream"):
            return events_for(match[1])
        inputs = json.loads(request.body)["inputs"]
        return Answer(200, answer_for(match[1], 1 if isinstance(inputs, str) else len(inputs)))
    if path == "/v1/predict":
        body = json.loads(request.body)
        if "tasks" in body:
            return Answer(200, {"tasks": body["tasks"], "results": [one_result(task) for task in body["tasks"]]})
        return Answer(200, {"results": [one_result(item["task"]) for item in body["requests"]]})
    if path == "/v1/adapters" and request.method == "GET":
        return list_page(request.path)
    if request.method == "PUT" and path == "/v1/adapters/sst2/aliases/live":
        asked = json.loads(request.body)
        return Answer(200, alias(asked.get("versions") or {str(asked["version"]): 1.0}))
    if path == "/v1/audit":
        return audit_page(request.path)
    if path.startswith(("/v1/keys", "/v1/tenants")):
        return administration(request)
    fixed = {
        "GET /v1/adapters/sst2/aliases": Answer(200, {"aliases": [alias({"1": 1.0})]}),
        "GET /v1/adapters/sst2/aliases/live/history": Answer(
            200, {"changes": [alias(split) for split in ({}, {"1": 0.9, "2": 0.1}, {"1": 1.0})]}
        ),
        "POST /v1/adapters/sst2/aliases/live/rollback": Answer(200, alias({"1": 0.9, "2": 0.1})),
        "DELETE /v1/adapters/sst2/aliases/live": Answer(204),
        "POST /v1/adapters/sst2/versions/1/undelete": Answer(200, VERSION),
        "POST /v1/adapters/sst2/versions/1/deprecate": Answer(200, {**VERSION, "deprecation": "old"}),
        "PATCH /v1/adapters/sst2": Answer(200, {**adapter("sst2"), "public": True}),
        "POST /v1/adapters": Answer(201, VERSION),
        "GET /v1/adapters/sst2": Answer(200, adapter("sst2")),
        "GET /v1/adapters/sst2/versions": versions_page(request.path),
        "GET /v1/adapters/sst2/versions/1": Answer(200, VERSION),
        "GET /v1/adapters/sst2/versions/1/artifact": Answer(200, b"artifact", {"x-adapter-digest": VERSION["digest"]}),
        "DELETE /v1/adapters/sst2": Answer(204),
        "DELETE /v1/adapters/sst2/versions/1": Answer(204),
        "GET /health": Answer(200, {"status": "ok"}),
        "GET /ready": Answer(200, {"status": "ready"}),
        "GET /info": Answer(200, INFO),
        "GET /metrics": Answer(200, METRICS.encode()),
    }
    return fixed.get(f"{request.method} {path}", error(404, "adapter_not_found", f"no adapter at {path}"))


KEY: dict[str, Any] = {
    "prefix": "abcdefgh",
    "tenant": "default",
    "scopes": ["predict", "publish"],
    "note": "of [ada]",
    "created_at": "2026-11-21T00:00:00Z",
    "created_by": "operator",
    "expires_at": None,
    "revoked_at": None,
}
QUOTAS: dict[str, Any] = {
    "requests_per_second": 5.0,
    "tokens_per_second": None,
    "max_concurrent_requests": 8,
    "max_stored_bytes": 1048576,
    "max_adapters": None,
    "max_trainings": None,
    "max_training_rows": None,
    "max_training_minutes_per_day": None,
    "weight": 1.0,
}
USAGE: dict[str, Any] = {
    "requests": None,
    "tokens": {"used": 3, "limit": 50, "seconds": 10},
    "concurrent_requests": 1,
    "stored_bytes": 8,
    "adapters": 1,
    "trainings": 1,
    "training_minutes": 2.5,
}
TENANT: dict[str, Any] = {"name": "default", "created_at": "2026-11-21T00:00:00Z", "quotas": QUOTAS}


def administration(request: Received) -> Answer:
    """A server with one key and one tenant, which makes what it is asked for."""
    asked = json.loads(request.body or b"{}")
    match request.method, request.path.partition("?")[0]:
        case "POST", "/v1/keys":
            return Answer(201, {**KEY, **asked, "key": f"plt_abcdefgh_{'x' * 43}"})
        case "GET", "/v1/keys":
            if "cursor=abcdefgh" in request.path:
                return Answer(200, {"keys": [{**KEY, "prefix": "zyxwvuts", "revoked_at": KEY["created_at"]}]})
            return Answer(200, {"keys": [KEY], "next_cursor": "abcdefgh"})
        case "DELETE", "/v1/keys/abcdefgh":
            return Answer(204)
        case "POST", "/v1/tenants":
            return Answer(201, {**TENANT, "name": asked["name"], "quotas": asked.get("quotas", {})})
        case "GET", "/v1/tenants":
            if "cursor=default" in request.path:
                return Answer(200, {"tenants": [{**TENANT, "name": "other"}]})
            return Answer(200, {"tenants": [TENANT], "next_cursor": "default"})
        case "GET", ("/v1/tenants/default" | "/v1/tenants/default/usage") as path:
            return Answer(200, USAGE if path.endswith("/usage") else TENANT)
        case "PUT", "/v1/tenants/default":
            return Answer(200, {**TENANT, "quotas": asked})
    return error(404, "not_found", f"nothing at {request.path}")


def one_result(task: str) -> dict[str, Any]:
    """One entry of a mixed answer; the task `missing` is missing."""
    if task == "missing":
        return {"error": {"code": "adapter_not_found", "message": "no adapter 'missing'", "details": []}}
    return answer_for(task, 1)


def list_page(path: str) -> Answer:
    """Two pages of adapters."""
    if "cursor=next" in path:
        return Answer(200, {"adapters": [summary("stsb")], "next_cursor": None})
    return Answer(200, {"adapters": [summary("nli"), summary("sst2")], "next_cursor": "next"})


def summary(name: str) -> dict[str, Any]:
    """An adapter as lists show it."""
    whole = adapter(name)
    return {key: whole[key] for key in whole if key != "aliases"} | {"latest": outlined(whole["latest"])}


def outlined(version: dict[str, Any]) -> dict[str, Any]:
    """A version as lists show it."""
    task = {key: value for key, value in version["task"].items() if key != "labels"}
    brief = {key: version[key] for key in version if key != "metrics"}
    return brief | {"task": task | {"num_labels": len(version["task"]["labels"])}}


def versions_page(path: str) -> Answer:
    """Two pages of versions, newest first."""
    if "cursor=2" in path:
        return Answer(200, {"versions": [outlined(VERSION)], "next_cursor": None})
    return Answer(200, {"versions": [outlined({**VERSION, "version": 2})], "next_cursor": "2"})


def audit_page(path: str) -> Answer:
    """Two pages of the audit log, newest first."""
    at = "2026-11-21T00:00:00Z"
    record = {"at": at, "tenant": "default", "actor": "key:abcdefgh", "action": "publish", "subject": "sst2@1"}
    ids, cursor = ([1], None) if "cursor=2" in path else ([3, 2], "2")
    records = [{**record, "id": number, "detail": {"note": "[x]"}} for number in ids]
    return Answer(200, {"records": records, "next_cursor": cursor})


INFO = {
    "version": "0.1.0",
    "backbone": {
        "name": "minilm",
        "family": "bert",
        "fingerprint": "sha256:0",
        "hidden_size": 384,
        "num_layers": 6,
        "num_heads": 12,
        "max_length": 512,
        "device": "cpu",
        "dtype": "float32",
    },
    "kernels": {"linear": "native"},
    "num_adapters": 3,
}
METRICS = """
# TYPE peltier_ready gauge
peltier_ready 1.0
process_start_time_seconds 1.7e+09
peltier_requests_total{code="200",tenant="default"} 3.0
peltier_runner_restarts_total 0.0
peltier_queue_tokens{tenant="default"} 0.0
peltier_queue_max_tokens 262144.0
"""


@pytest.fixture
def server() -> Iterator[LittleServer]:
    little = LittleServer()
    yield little
    little.close()


@pytest.fixture
def closed_url() -> Iterator[str]:
    """An address where nothing listens; its port is taken until the test ends."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def client(server: LittleServer) -> Iterator[Client]:
    """A client that tries a second time."""
    with Client(server.url, api_key="plt_secret", max_attempts=2) as client:
        yield client


@pytest.fixture
async def async_client(server: LittleServer) -> AsyncIterator[AsyncClient]:
    """The same for asynchronous code."""
    async with AsyncClient(server.url, api_key="plt_secret", max_attempts=2) as client:
        yield client


@pytest.fixture
def answer() -> type[Answer]:
    return Answer


@pytest.fixture
def stream_of() -> Callable[..., Answer]:
    return events


@pytest.fixture
def refuse() -> Callable[..., Answer]:
    return error
