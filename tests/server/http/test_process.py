"""The real process over a real socket: it stops without losing requests, and acknowledged changes survive a kill."""

import gc
import json
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from fastapi import FastAPI
from peltier_adapters.batch.row import Row
from peltier_backbone.backbone import Backbone
from peltier_server.app import create_app
from peltier_server.extensions.settings import Settings, load_settings
from peltier_server.http import process
from peltier_server.http.process import DrainingServer, create_config
from peltier_server.runner import isolation

from tests.server.attacker import listen
from tests.support.server_process import Server

Start = Callable[..., Server]

_AT_ONCE = ("--lame-duck-seconds", "0")
_JSON = {"content-type": "application/json"}
# The time as a lame duck ends half a second after the file in the variable is there.
_PATIENT = """
import math, os
from peltier_server.http.process import DrainingServer

on_tick, file, ticks = DrainingServer.on_tick, os.environ["HEARD"], 0

async def wait(self, counter):
    global ticks
    ticks += os.path.exists(file)
    self._drain_at = 0.0 if ticks > 5 else math.inf
    return await on_tick(self, counter)

DrainingServer.on_tick = wait
"""
# Four tokens with those that begin and end it; no golden example has as many.
_SLOW_TEXT = "good film"
# A batch with such a text is computed for a second.
_SLOW = """
import time
from peltier_server.runner import isolation

forward = isolation.forward

def slow(backbone, rows, **options):
    end = time.monotonic() + 1
    outputs = forward(backbone, rows, **options)
    while any(len(row.encoded) == 4 for row in rows) and time.monotonic() < end:
        outputs = forward(backbone, rows, **options)
    return outputs

isolation.forward = slow
"""


@pytest.fixture
def start(bert_directory: Path, tmp_path: Path) -> Iterator[Start]:
    """`start(*flags, first=…)`: processes that share a store."""
    servers: list[Server] = []

    def make(*flags: str, **options: str) -> Server:
        shared = ("--backbone", str(bert_directory), "--store", str(tmp_path / "store"))
        servers.append(Server(tmp_path / f"log{len(servers)}", *shared, *flags, **options))
        return servers[-1]

    yield make
    for server in servers:
        server.end()


def test_clients_and_proxies_close_idle_connections_first() -> None:
    """Else a request may be sent on a connection that the server closes at that moment: httpx and OpenAI's client keep
    one for 5 s, nginx and most load balancers for 60 s."""
    config = create_config(FastAPI(), load_settings({}).limits)
    assert config.timeout_keep_alive > 60


@pytest.mark.slow
def test_a_signal_drains(start: Start, bert: Backbone, make_artifact: Callable[..., bytes]) -> None:
    """Every accepted request is answered, newcomers read 503, the process ends with 0; a kill -9 then loses nothing."""
    # A batch a row, so that the drain takes long enough to be seen.
    server = start(*_AT_ONCE, "--drain-seconds", "120", "--max-batch-tokens", "16").wait_until_ready()
    server.client.timeout = 120
    assert server.upload(make_artifact(bert)).status_code == 201
    text = "the plot was not very good , and the actor is dull"
    tokens, before = server.predict(text).json()["usage"]["tokens"], _accepted(server)
    answers: list[httpx2.Response] = []
    callers = [threading.Thread(target=lambda: answers.append(server.predict([text] * 300))) for _ in range(4)]
    for caller in callers:
        caller.start()
    # All rows of a request come at once, so more than those of three are those of four.
    _wait_until(lambda: _accepted(server) - before > 3 * 300 * tokens)
    assert _tokens(server, "queue_tokens") > 0
    server.process.send_signal(signal.SIGTERM)
    refused = _until_draining(server)
    for caller in callers:
        caller.join()
    assert server.process.wait(60) == 0
    assert [answer.status_code for answer in answers] == [200] * 4
    # What asked too early to be refused was open too.
    assert re.search(r"drain begun open=[45] seconds=120.0\n", server.log)
    assert re.search(r"drain ended answered=[45] cut_off=0 refused=[1-9]\d* seconds=\S+\n", server.log)
    assert [len(answer.json()["predictions"]) for answer in answers] == [300] * 4
    assert refused.json()["error"]["code"] == "draining"
    assert refused.headers["retry-after"] == "1"

    server = start().wait_until_ready()
    assert server.client.get("/v1/adapters/demo").json()["latest"]["version"] == 1
    second = make_artifact(bert, seed=2)
    assert server.upload(second).json()["version"] == 2
    server.process.kill()
    server.process.wait()

    server = start().wait_until_ready()
    assert server.client.get("/v1/adapters/demo/versions/2/artifact").content == second
    assert server.predict("bad").json()["adapter"]["version"] == 2


def test_a_signal_under_load_loses_nothing(start, t5, t5_directory, make_artifact, tmp_path):
    """A dozen callers of single texts, streams and large requests, who heed /ready as a balancer does: every request
    that they have sent is answered wholly, though many end long after the signal."""
    # The callers hear of the signal before the drain begins.
    heard = tmp_path / "heard"
    flags = ("--backbone", str(t5_directory), "--drain-seconds", "300")
    server = start(*flags, first=_PATIENT, HEARD=str(heard)).wait_until_ready()
    for name, kind in (("labels", "classification"), ("texts", "text2text")):
        server.upload(make_artifact(t5, name=name, task_type=kind)).raise_for_status()
    calls = [
        ("labels", {"inputs": "the plot was not very good"}),
        ("texts", {"inputs": "the plot was not very good", "stream": True}),
        ("labels", {"inputs": ["the plot was not very good , and the actor is dull"] * 40}),
    ]
    crowd = [Caller(server.url, *calls[number % len(calls)]) for number in range(12)]
    for caller in crowd:
        caller.thread.start()
    _wait_until(lambda: all(caller.num_answers or caller.failures for caller in crowd))
    server.process.send_signal(signal.SIGTERM)
    _wait_until(lambda: httpx2.get(f"{server.url}/ready", timeout=60).status_code == 503)
    for caller in crowd:
        caller.leaving.set()
    for caller in crowd:
        assert caller.sent.wait(300)
    heard.touch()
    assert server.process.wait(400) == 0
    for caller in crowd:
        caller.thread.join(60)
        assert caller.failures == []


class Caller:
    """A caller who sends requests until told to stop, over a connection that is kept alive. Once it is told and `sent`
    is set, it sends nothing more."""

    def __init__(self, url: str, task: str, body: dict[str, object]) -> None:
        self.leaving, self.sent = threading.Event(), threading.Event()
        self.failures: list[str] = []
        self.num_answers = 0
        self._url, self._body = f"{url}/v1/tasks/{task}/predict", body
        self.thread = threading.Thread(target=self._ask_and_leave)

    def _ask_and_leave(self) -> None:
        try:
            self._ask()
        finally:
            self.sent.set()

    def _send(self, data: bytes) -> Iterator[bytes]:
        yield data
        self.sent.set()

    def _ask(self) -> None:
        data = json.dumps(self._body).encode()
        headers = {**_JSON, "content-length": str(len(data))}
        with httpx2.Client(timeout=120) as client:
            while True:
                self.sent.clear()
                if self.leaving.is_set():
                    return
                try:
                    answer = client.post(self._url, content=self._send(data), headers=headers)
                except httpx2.HTTPError as error:
                    self.failures.append(repr(error))
                    return
                whole = "stream" not in self._body or answer.text.endswith("data: [DONE]\n\n")
                if answer.status_code != 200 or not whole:
                    self.failures.append(f"{answer.status_code} {answer.text[-200:]}")
                self.num_answers += 1


class ServerThread:
    """What `peltier serve` runs, in a thread of this process."""

    def __init__(self, settings: Settings) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://{}:{}".format(*self._listener.getsockname())
        self.app, self._thresholds = create_app(settings), gc.get_threshold()
        config, lifecycle = create_config(self.app, settings.limits), self.app.state.lifecycle
        self._server = DrainingServer(config, lifecycle, settings.drain, self.url)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]})

    def __enter__(self) -> "ServerThread":
        self._thread.start()
        _wait_until(lambda: self.app.state.lifecycle.ready)
        return self

    def upload(self, data: bytes) -> None:
        httpx2.post(f"{self.url}/v1/adapters", files={"file": data}, timeout=60).raise_for_status()

    def stop(self) -> None:
        self._server.handle_exit(signal.SIGTERM, None)

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join(60)
        self._listener.close()
        gc.set_threshold(*self._thresholds)
        assert not self._thread.is_alive()


def test_a_drain_has_an_end(settings_of, bert, make_artifact, monkeypatch, caplog):
    """What is not answered within `drain_seconds` reads 503, not a broken connection: here rows that wait in the queue
    behind some that are computed."""
    forward, computing, released = isolation.forward, threading.Event(), threading.Event()

    def wait(backbone: Backbone, rows: Sequence[Row], **options: Any) -> Any:
        if any(len(row.encoded) == 4 for row in rows):
            computing.set()
            released.wait(60)
        return forward(backbone, rows, **options)

    monkeypatch.setattr(isolation, "forward", wait)
    limits = settings_of(lame_duck_seconds=0, drain_seconds=0.1, max_batch_tokens=16)
    with ServerThread(limits) as server, ThreadPoolExecutor(1) as pool:
        server.upload(make_artifact(bert))
        path, body = f"{server.url}/v1/tasks/demo/predict", {"inputs": [_SLOW_TEXT] * 1000}
        asked = pool.submit(httpx2.post, path, json=body, timeout=60)
        assert computing.wait(60)
        assert server.app.state.lifecycle.service().batcher.queued_rows > 900
        server.stop()
        answer = asked.result(60)
        released.set()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
    (ended,) = (record for record in caplog.records if record.getMessage() == "drain ended")
    fields = vars(ended)["fields"]
    assert (ended.levelname, fields["answered"], fields["cut_off"]) == ("WARNING", 0, 1)


@pytest.mark.slow  # the test above stays, of what a drain cuts off
def test_downloads_that_a_drain_cuts_off_are_a_line_each(start, bert, make_artifact):
    """For callers who read slowly or not at all; the rest is not sent, and the log has no traceback."""
    server = start(*_AT_ONCE, "--drain-seconds", "0.3", "--max-adapter-cost", "1000").wait_until_ready()
    server.client.timeout = 120
    large = make_artifact(bert, "houlsby", name="large", overrides={"bottleneck": "4096"})
    assert server.upload(large).status_code == 201
    host, port = server.url.removeprefix("http://").split(":")
    slow = [socket.socket() for _ in range(3)]
    for connection in slow:
        # Most of the artifact must not fit into the buffers of the two ends.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((host, int(port)))
        connection.sendall(b"GET /v1/adapters/large/versions/1/artifact HTTP/1.1\r\nhost: a\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    for connection in slow:
        with connection:
            assert len(listen(connection)) < len(large)
    assert server.log.count("the server stopped in the middle of the answer") == len(slow), server.log
    assert "Traceback" not in server.log
    assert " ERROR uvicorn.error: ASGI callable" not in server.log


def test_a_second_signal_ends_it_now(start: Start, bert: Backbone, make_artifact: Callable[..., bytes]) -> None:
    """While rows are computed: their caller reads 503, the log says it in one line without a traceback, and the process
    ends with 1, not by a crash."""
    flags = ("--lame-duck-seconds", "300", "--max-batch-tokens", "16")
    server = start(*flags, first=_SLOW).wait_until_ready()
    server.client.timeout = 120
    assert server.upload(make_artifact(bert)).status_code == 201
    answers: list[httpx2.Response] = []
    many = [_SLOW_TEXT] * 1000
    caller = threading.Thread(target=lambda: answers.append(server.predict(many)))
    caller.start()
    _wait_until(lambda: _tokens(server, "queue_tokens") > 0)
    server.process.send_signal(signal.SIGTERM)
    _wait_until(lambda: "signal received" in server.log)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 1
    caller.join()
    assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (503, "draining")
    after = server.log.partition("signal received")[2].splitlines()[1:]
    assert [re.sub(r"^\S+ ", "", line) for line in after] == [
        "INFO peltier_server.http.process: signal received signal=SIGTERM",
        "WARNING peltier_server.http.process: a second signal has ended the server; what it still computed is lost",
    ]


def test_the_life_of_a_server_is_in_its_log(start: Start) -> None:
    """In JSON every line is an object, the HTTP library's too: start, ready, requests, signal, drain, shutdown."""
    server = start(*_AT_ONCE, "--log-format", "json", "--access-log").wait_until_ready()
    forged = f"plt_abcdefgh_{'x' * 43}\n{{}}"
    assert server.client.delete(f"/v1/keys/{quote(forged)}", params={"secret": "word"}).status_code == 404
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as stranger:
        stranger.sendall(b"no HTTP at all\r\n\r\n")
        assert stranger.recv(100).startswith(b"HTTP/1.1 400")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    records = [json.loads(line) for line in server.log.splitlines()]
    assert all(
        re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one["time"]) and one["level"] and one["logger"]
        for one in records
    )
    told = [one["message"] for one in records if one["logger"] == "peltier_server.http.process"]
    assert [re.sub(r" on .*", "", message) for message in told] == [
        "Peltier starts",
        "Peltier is ready",
        "signal received",
        "drain begun",
        "drain ended",
        "shutdown complete",
    ]
    (deletion,) = [one for one in records if one.get("method") == "DELETE"]
    assert (deletion["path"], deletion["route"]) == ("/v1/keys/[key]\n{}", "/v1/keys/{prefix}")
    assert (deletion["status"], deletion["tenant"], len(deletion["request_id"])) == (404, "default", 32)
    assert "word" not in server.log
    assert any((one["logger"], one["level"]) == ("uvicorn.error", "WARNING") for one in records)


def _tokens(server: Server, metric: str) -> float:
    found = re.search(rf'{metric}{{tenant="default"}} (\S+)', server.client.get("/metrics").text)
    return float(found[1]) if found else 0.0


def _accepted(server: Server) -> float:
    """Tokens that have been computed or wait; not those that are being computed."""
    return _tokens(server, "served_tokens_total") + _tokens(server, "queue_tokens")


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _until_draining(server: Server) -> httpx2.Response:
    """The first refusal, over connections of its own; who is still accepted waits in vain behind all others."""
    body = {"inputs": "bad", "parameters": {"timeout_ms": 50}}
    for _ in range(2000):
        answer = httpx2.post(f"{server.url}/v1/tasks/demo/predict", json=body, timeout=60)
        if answer.status_code == 503:
            assert httpx2.get(f"{server.url}/ready", timeout=60).status_code == 503
            assert httpx2.get(f"{server.url}/health", timeout=60).status_code == 200
            return answer
    raise AssertionError("never refused")


def test_what_cannot_start_says_why_in_one_line(start: Start, tmp_path: Path) -> None:
    missing = start("--backbone", str(tmp_path / "nothing"))
    open_to_all = start("--host", "0.0.0.0")  # noqa: S104 - what must be refused
    assert missing.process.wait(180) == 1
    assert open_to_all.process.wait(180) == 1
    assert re.search(r"^error: .*nothing", missing.log, re.MULTILINE)
    assert "the server would be open to the network and has no key: set PELTIER_ADMIN_KEY" in open_to_all.log
    assert "Traceback" not in missing.log + open_to_all.log


@pytest.mark.parametrize(
    ("allowed", "more", "fitting"),
    [
        (10**6, {}, 2048),
        (4672, {}, 2048),
        (4671, {}, 2047),
        (4672, {"grpc_port": 0, "routing_port": 0}, 1888),
        (400, {}, 50),
    ],
)
def test_connections_leave_files_to_the_rest(allowed, more, fitting, settings_of, monkeypatch):
    """Two for each connection, 512 for all else and 64 for probes; those of other ports are counted."""
    monkeypatch.setattr(process, "_allow_files", lambda count: min(count, allowed))
    settings = settings_of(**more)
    assert process._fit_files(settings, create_app(settings).state.num_files).max_connections == fitting
