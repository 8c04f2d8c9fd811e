"""Requests of an attacker over a real socket to a real process: each ends, with little effect on other callers.

The bounds here are seconds and memory, so all of it is slow; `http/test_cut_off.py` stays in the gate."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from peltier_adapters.spec.tasks import MAX_TAGS
from peltier_backbone.backbone import Backbone
from peltier_server.http.uploads import MAX_RECEIVED_AT_ONCE

from tests.server.attacker import AttackedServer, Stopwatch, bystander, listen, post, send_for_ever, status_of
from tests.server.http.test_process import Server

pytestmark = pytest.mark.slow
_MIB = 1024 * 1024
STALL_SECONDS = 1.0
MAX_ARTIFACT_BYTES = 8 * _MIB
# An attack is over when the server has waited, has lingered for two seconds, and has answered. All seconds are those
# of a `Stopwatch`.
MAX_SECONDS = STALL_SECONDS + 2.0 + 5.0
# An undisturbed prediction takes 6 ms here; measured beside an attack: 5 to 30 ms, the longest one 0.7 s.
MAX_MEDIAN_SECONDS = 0.5
MAX_ANSWER_SECONDS = 5.0
PREDICT = "/v1/tasks/demo/predict"

Serving = Callable[[float], contextlib.AbstractContextManager[Server]]


@pytest.fixture(scope="module")
def serving(bert_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Serving:
    """`with serving(stall_seconds) as server`: a process of `peltier serve`; all have one store."""
    directory = tmp_path_factory.mktemp("hostile")

    @contextlib.contextmanager
    def start(stall_seconds: float) -> Iterator[Server]:
        flags = ("--backbone", str(bert_directory), "--store", str(directory / "store"))
        limits = {"PELTIER_STALL_SECONDS": str(stall_seconds), "PELTIER_MAX_ARTIFACT_BYTES": str(MAX_ARTIFACT_BYTES)}
        # Of the little backbone here a megabyte is many times the size.
        limits["PELTIER_MAX_ADAPTER_COST"] = "1000"
        server = Server(directory / f"log{stall_seconds}", *flags, **limits).wait_until_ready()
        try:
            yield server
            assert "Traceback" not in server.log
        finally:
            server.end()

    return start


@pytest.fixture(scope="module")
def target(serving: Serving, bert: Backbone, make_artifact: Callable[..., bytes]) -> Iterator[AttackedServer]:
    """One with the default `stall_seconds`: its callers may stand still for a while."""
    with serving(30.0) as server:
        assert server.upload(make_artifact(bert)).status_code == 201
        yield AttackedServer(server.process.pid, server.url)


@pytest.fixture(scope="module")
def impatient(target: AttackedServer, serving: Serving) -> Iterator[AttackedServer]:
    """One with a `stall_seconds` of one second, for what it does to those who stand still; it has what `target` has."""
    with serving(STALL_SECONDS) as server:
        yield AttackedServer(server.process.pid, server.url)


@pytest.fixture(autouse=True)
def _undisturbed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Another caller gets the same answers before, during and after each test."""
    attacked = request.getfixturevalue("impatient" if "impatient" in request.fixturenames else "target")
    with bystander(attacked) as watch:
        yield
    assert len(watch.answers) == 1, watch.answers
    print(f"median {1000 * watch.median_seconds:.1f} ms, longest {1000 * max(watch.seconds):.0f} ms")
    assert watch.median_seconds < MAX_MEDIAN_SECONDS
    assert max(watch.seconds) < MAX_ANSWER_SECONDS


def test_a_head_that_never_ends_is_cut_off(impatient: AttackedServer) -> None:
    """Two hundred connections that send a byte now and then, and some that send nothing, are closed in time."""
    watch = Stopwatch(impatient.pid)
    connections = [impatient.connect() for _ in range(200)]
    for number, connection in enumerate(connections):
        connection.sendall(b"" if number % 4 == 0 else b"GET /health HTTP/1.1\r\nhost: ")
    slow = dict.fromkeys(connections[1::4], 0)
    while slow and watch.seconds < MAX_SECONDS:
        time.sleep(0.1)
        for connection in [*slow]:
            try:
                connection.sendall(b"a")
                slow[connection] += 1
            except ConnectionError:
                assert slow.pop(connection) > 1
    for connection in connections:
        assert listen(connection) == b""
        connection.close()
    assert watch.seconds < MAX_SECONDS


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\nx: ", b"GET /", b""], ids=["header", "address", "nothing"])
def test_a_head_of_any_size_takes_no_memory(target: AttackedServer, start: bytes) -> None:
    with target.bounded(16 * _MIB), target.connect() as connection:
        connection.sendall(start)
        send_for_ever(target, connection, b"a" * 65536, MAX_SECONDS)


def test_a_hundred_thousand_headers_are_refused(target: AttackedServer) -> None:
    """Together they are larger than a head may be."""
    with target.bounded(16 * _MIB):
        status, _ = target.say(b"GET /health HTTP/1.1\r\n" + b"x: y\r\n" * 100_000 + b"\r\n")
    assert status in (0, 400)


def test_requests_in_a_pipeline_are_not_collected(target: AttackedServer) -> None:
    """Thousands in one piece, whose sender reads no answer, do not wait in memory."""
    with target.bounded(32 * _MIB), target.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n" * 20_000)
        listen(connection)


def half_bodies() -> dict[str, bytes]:
    paths = (PREDICT, "/v1/predict", "/v1/completions")
    halves = {path: post(path, b'{"inputs": ', length=1000) for path in paths}
    return halves | {"/v1/adapters": _form(_part(b"file", b"a", file=True))[:-10]}


def test_a_body_that_stops_is_answered(impatient: AttackedServer) -> None:
    """Half a body, and then nothing: 408 once the server has waited, on every kind of route."""
    halves = half_bodies()
    started = time.monotonic()
    with ThreadPoolExecutor(len(halves)) as pool:
        answers = dict(zip(halves, pool.map(impatient.say, halves.values()), strict=True))
    assert {path: status for path, (status, _) in answers.items()} == dict.fromkeys(halves, 408)
    assert all(seconds < MAX_SECONDS for _, seconds in answers.values()), answers
    assert time.monotonic() - started > STALL_SECONDS * 0.9


def test_a_body_that_trickles_is_answered(impatient: AttackedServer) -> None:
    """A byte every tenth of a second never stands still, and is too slow all the same."""
    watch = Stopwatch(impatient.pid)
    with impatient.connect() as connection:
        connection.sendall(post(PREDICT, b"", length=100_000))
        connection.settimeout(0.1)
        answer = b""
        while not answer and watch.seconds < MAX_SECONDS:
            connection.sendall(b" ")
            try:
                answer = connection.recv(65536)
            except TimeoutError:
                continue
    assert status_of(answer) == 408


def chunked_head(path: str) -> bytes:
    kind = "multipart/form-data; boundary=b" if path == "/v1/adapters" else "application/json"
    return f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()


@pytest.mark.parametrize("path", [PREDICT, "/v1/adapters", "/info", "/v1/nothing", "/health"])
def test_a_chunked_body_without_end_is_cut_off(target: AttackedServer, path: str) -> None:
    chunk = b"10000\r\n" + b"a" * 65536 + b"\r\n"
    with target.bounded(MAX_ARTIFACT_BYTES + 32 * _MIB), target.connect() as connection:
        connection.sendall(chunked_head(path))
        send_for_ever(target, connection, chunk, MAX_SECONDS + 5)


LIES = {
    "too long by five": (post(PREDICT, b'{"inputs": "a"}', length=20), 408),
    "too short by five": (post(PREDICT, b'{"inputs": "bad"}', length=12), 400),
    "negative": (post(PREDICT, b"{}", length=-1), 400),
    "no number": (post(PREDICT, b"{}", length="two"), 400),
    "two to the 64": (post(PREDICT, b"{}", length=2**64), 400),
    "a terabyte": (post(PREDICT, b"{}", length=2**40), 413),
    "twice": (post(PREDICT, b"{}", "content-length: 7"), 400),
    "and chunked": (post(PREDICT, b"0\r\n\r\n", "transfer-encoding: chunked"), 400),
    "chunk of 2 to the 64": (
        post(PREDICT, b"10000000000000000\r\n").replace(b"content-length: 19", b"transfer-encoding: chunked"),
        400,
    ),
    "not HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10, 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_the_length_is_answered(impatient: AttackedServer, lie: str) -> None:
    """And never waited for longer than for anyone else."""
    request, wanted = LIES[lie]
    status, seconds = impatient.say(request)
    assert status == wanted
    assert seconds < MAX_SECONDS


def _form(*parts: bytes) -> bytes:
    body = b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + b"--b--\r\n"
    head = f"POST /v1/adapters HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"content-type: multipart/form-data; boundary=b\r\n\r\n" + body


def _part(name: bytes, value: bytes, file: bool = False) -> bytes:
    filename = b'; filename="a"' if file else b""
    return b'content-disposition: form-data; name="' + name + b'"' + filename + b"\r\n\r\n" + value


FORMS = {
    "10000 fields": _form(*[_part(b"name", b"a")] * 10_000),
    "10000 files": _form(*[_part(b"file", b"a", file=True)] * 10_000),
    "two files": _form(*[_part(b"file", b"a", file=True)] * 2),
    "name of 4 MB": _form(_part(b"n" * 4_000_000, b"a")),
    "field of 7 MB": _form(_part(b"name", b"a" * 7_000_000)),
    "header of 4 MB": _form(b"x: " + b"y" * 4_000_000 + b"\r\n" + _part(b"name", b"a")),
    "100000 headers": _form(b"x: y\r\n" * 100_000 + _part(b"name", b"a")),
    "no name": _form(b"content-disposition: form-data\r\n\r\na"),
    "nothing": _form(),
    "only dashes": _form(b"-" * 1_000_000),
    "slow charset": _form(_part(b"name", b"a-" + b"9" * 60_000)).replace(
        b"boundary=b", b"boundary=b; charset=punycode"
    ),
    "odd charset": _form(_part(b"name", b"\xff" * 1000)).replace(b"boundary=b", b"boundary=b; charset=undefined"),
    "no boundary": _form(_part(b"name", b"a")).replace(b"; boundary=b", b""),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_hostile_form_is_refused(target: AttackedServer, form: str) -> None:
    with target.bounded(32 * _MIB):
        status, seconds = target.say(FORMS[form])
    assert status in (400, 413, 422), status
    assert seconds < MAX_SECONDS


BODIES = {
    "deep lists": (b"[" * 60_000 + b"]" * 60_000, {400}),
    "deep objects": (b'{"inputs": ' + b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"}", {400}),
    "deep and unfinished": (b'{"inputs": ' + b"[" * 2_000_000, {413}),
    "empty lists": (b'{"requests": [' + b"[]," * 600_000 + b"[]]}", {413}),
    "empty lists below the limit": (b'{"requests": [' + b"[]," * 32_000 + b"[]]}", {422}),
    "unknown keys": (b'{"inputs": "a", %s}' % b", ".join(b'"k%d": 1' % n for n in range(30_000)), {422}),
    "numbers": (b'{"inputs": [' + b"1," * 60_000 + b"1]}", {422}),
    "1e400": (b'{"inputs": "bad", "parameters": {"timeout_ms": 1e400}}', {422}),
    "a number of a million digits": (b'{"inputs": ' + b"9" * 1_000_000 + b"}", {400}),
    "NaN": (b'{"inputs": NaN}', {400, 422}),
    "a lone surrogate": (b'{"inputs": "\\ud800"}', {422}),
    "a lone surrogate as key": (b'{"inputs": "a", "\\ud800": 1}', {422}),
    "NUL": (b'{"inputs": "good\\u0000film"}', {200}),
    "NUL itself": (b'{"inputs": "good\x00film"}', {400}),
    "a text of 2 MB": (json.dumps({"inputs": "good film " * 190_000}).encode(), {200}),
    "a word of 2 MB": (json.dumps({"inputs": "g" * 1_900_000}).encode(), {200}),
    "combining marks": (json.dumps({"inputs": "e" + "\u0301" * 300_000}).encode(), {200}),
    "1024 inputs": (json.dumps({"inputs": ["good"] * 1024}).encode(), {200}),
    "1025 inputs": (json.dumps({"inputs": ["good"] * 1025}).encode(), {422}),
    "UTF-16": ('{"inputs": "bad"}'.encode("utf-16"), {200, 400}),
    "quotes": (b'"' * 2_000_000, {413}),
    "nothing": (b"", {422}),
}


@pytest.mark.parametrize("body", BODIES)
def test_hostile_json_is_answered(target: AttackedServer, body: str) -> None:
    content, wanted = BODIES[body]
    path = "/v1/predict" if b'"requests"' in content else PREDICT
    # Tokenizing takes ninety bytes a byte of text, for two texts at once; the mistakes of 65,536 tokens take 80 MiB.
    with target.bounded(256 * _MIB):
        status, seconds = target.say(post(path, content, "connection: close"), 60)
    assert status in wanted
    assert seconds < 30


def test_tokens_of_many_tags_take_the_memory_of_a_batch(target, bert, make_artifact):
    """48,000 tokens have 188 MiB of logits for 1,024 tags, but each batch leaves only the likeliest tags of them."""
    tags = [f"B-{number}" for number in range(MAX_TAGS)]
    data = make_artifact(bert, "bitfit", labels=tags, task_type="token-classification")
    with httpx2.Client(base_url=target.url, timeout=60) as client:
        client.post("/v1/adapters", files={"file": ("a", data)}, data={"name": "tags"}).raise_for_status()
        warm = {"inputs": ["a " * 64] * 50, "parameters": {"stride": 0}}
        client.post("/v1/tasks/tags/predict", json=warm)
        inputs = ["a " * 64] * 750
        with target.bounded(96 * _MIB):
            answer = client.post("/v1/tasks/tags/predict", json={"inputs": inputs})
        client.delete("/v1/adapters/tags").raise_for_status()
    assert answer.status_code == 200


def test_uploads_at_once_take_the_memory_of_two(target: AttackedServer) -> None:
    """Forty files of the largest size at the same time: two are in memory, of the others a few megabytes each."""
    data = b"\x10" + bytes(7) + b"{" + b"x" * (MAX_ARTIFACT_BYTES - 9)
    statuses: list[int] = []

    def upload() -> None:
        answer = httpx2.post(f"{target.url}/v1/adapters", files={"file": ("a", data)}, timeout=60)
        statuses.append(answer.status_code)

    threads = [threading.Thread(target=upload) for _ in range(40)]
    with target.bounded(2 * 4 * MAX_ARTIFACT_BYTES + MAX_RECEIVED_AT_ONCE * 3 * _MIB):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(statuses) <= {422, 503}
    assert statuses.count(422) > 0


def test_downloads_that_nobody_reads_take_some_pieces_each(target, bert, make_artifact):
    """A hundred callers of a large artifact who take none of it: some pieces each, not the artifact."""
    large = make_artifact(bert, "houlsby", name="large", overrides={"bottleneck": "3000"})
    assert 4 * _MIB < len(large) <= MAX_ARTIFACT_BYTES
    answer = httpx2.post(f"{target.url}/v1/adapters", files={"file": ("a", large)}, timeout=60)
    assert answer.status_code == 201, answer.text
    url = "/v1/adapters/large/versions/1/artifact"
    with target.bounded(150 * _MIB), contextlib.ExitStack() as open_ones:
        for _ in range(100):
            connection = open_ones.enter_context(target.connect())
            connection.sendall(b"GET " + url.encode() + b" HTTP/1.1\r\nhost: peltier\r\n\r\n")
        time.sleep(STALL_SECONDS)
    assert httpx2.get(f"{target.url}{url}", timeout=60).content == large
