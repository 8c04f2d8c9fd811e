"""The Open Inference Protocol over gRPC, by Triton's own client."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import httpx2
import numpy as np
import pytest
import tritonclient.grpc as triton
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from fastapi import FastAPI
from peltier_backbone.backbone import Backbone
from peltier_server.extensions.grpc import open_inference_pb2 as proto
from peltier_server.extensions.grpc import server as grpc_server
from peltier_server.extensions.grpc.messages import infer_call
from peltier_server.extensions.grpc.server import GrpcServer
from peltier_server.protocols.oip import inputs
from peltier_server.settings import SettingsError
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from benchmarks.common.libraries import installed
from tests.server.conftest import Listen, Listening
from tests.server.extensions.grpc.grpc_port import PREFACE, grpc_of, grpc_port
from tests.server.protocols.oip import frames

KEY = "plt_the-right-key"
HEADERS = {"authorization": f"Bearer {KEY}"}
TEXTS = np.array(["a good film", "bad", "ein schöner Film"], dtype=object)


@pytest.fixture(scope="module")
def listening(listen: Listen, bert: Backbone, make_artifact: Callable[..., bytes]) -> Iterator[Listening]:
    """A server with a key, and a task with single texts and one with pairs."""
    with listen(grpc_port=0, admin_key=KEY) as started:
        started.upload(make_artifact(bert, "compacter", name="film"), KEY)
        started.upload(make_artifact(bert, "lora", inputs="pair", name="nli"), KEY)
        yield started


@pytest.fixture(scope="module")
def port(listening: Listening) -> int:
    """The port of the calls."""
    return grpc_port(listening.app)


@pytest.fixture(scope="module")
def client(port: int) -> Iterator[triton.InferenceServerClient]:
    """Triton's client over gRPC."""
    with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        yield client


@pytest.fixture(scope="module")
def stub(port: int) -> Iterator[service_pb2_grpc.GRPCInferenceServiceStub]:
    """The calls themselves."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def metadata_of(key: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {key}"),)


def texts(name: str = "text") -> triton.InferInput:
    tensor = triton.InferInput(name, [len(TEXTS)], "BYTES")
    tensor.set_data_from_numpy(TEXTS)
    return tensor


def post(listening: Listening, path: str, body: object) -> httpx2.Response:
    return httpx2.post(f"{listening.url}{path}", json=body, headers=HEADERS, timeout=60).raise_for_status()


def test_a_text_of_invisible_characters_is_refused(client: triton.InferenceServerClient) -> None:
    """As by HTTP; here it is the second text of a pair."""
    blank = triton.InferInput("text_pair", [1], "BYTES")
    blank.set_data_from_numpy(np.array(["\u200b\ufeff"], dtype=object))
    first = triton.InferInput("text", [1], "BYTES")
    first.set_data_from_numpy(np.array(["bad"], dtype=object))
    with pytest.raises(InferenceServerException, match="an input text is empty"):
        client.infer("nli", [first, blank], headers=HEADERS)


def test_it_finds_the_server_and_its_models(client: triton.InferenceServerClient) -> None:
    """What the server, a model and the index say; probes need no key."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("film", headers=HEADERS)
    assert client.get_server_metadata(headers=HEADERS).name == "peltier"
    found = client.get_model_metadata("nli", headers=HEADERS)
    assert [(one.name, one.datatype, list(one.shape)) for one in found.inputs] == [
        ("text", "BYTES", [-1]),
        ("text_pair", "BYTES", [-1]),
    ]
    index = client.get_model_repository_index(headers=HEADERS)
    assert [(one.name, one.version, one.state) for one in index.models] == [
        ("film", "1", "READY"),
        ("nli", "1", "READY"),
    ]


def test_answers_are_those_of_http(client: triton.InferenceServerClient, listening: Listening) -> None:
    found = client.infer("film", [texts()], request_id="7", headers=HEADERS)
    right = post(listening, "/v1/tasks/film/predict", {"inputs": list(TEXTS)}).json()["predictions"]
    assert [one.decode() for one in found.as_numpy("label")] == [one["label"] for one in right]
    np.testing.assert_array_equal(found.as_numpy("scores"), np.float32([list(one["scores"].values()) for one in right]))
    assert (found.get_response().id, found.get_response().model_version) == ("7", "1")
    asked = [triton.InferRequestedOutput("score")]
    pair = client.infer("nli", [texts("text_pair"), texts()], model_version="1", outputs=asked, headers=HEADERS)
    assert [one.name for one in pair.get_response().outputs] == ["score"]


def test_tensors_may_be_in_the_message(stub: service_pb2_grpc.GRPCInferenceServiceStub) -> None:
    """In `contents`, as other clients send them; the metadata of the answer has its headers."""
    request = service_pb2.ModelInferRequest(model_name="film", id="8")
    tensor = request.inputs.add(name="text", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(b"a good film")
    metadata = (*metadata_of(KEY), ("x-request-id", "mine"))
    answer, call = stub.ModelInfer.with_call(request, metadata=metadata)
    assert [one.name for one in answer.outputs] == ["label", "score", "scores"]
    assert dict(call.trailing_metadata())["x-request-id"] == "mine"


@pytest.mark.parametrize("size", [1, 100_000], ids=["small", "large"])
def test_bytes_that_are_no_message_are_one_sentence(port: int, size: int) -> None:
    """Wherever they are read; the parser's own words name classes."""
    whole = service_pb2.ModelInferRequest(raw_input_contents=[bytes(size)]).SerializeToString()
    code, sentence = refusal(port, whole + b"\x0a\x05\xff")
    assert (code, sentence) == ("INVALID_ARGUMENT", "the message is not the protobuf of a ModelInferRequest")


def test_fields_are_counted_before_a_message_is_read(port: int) -> None:
    """Seven bytes are an output, and hundred thousands of them stopped the server for six seconds."""
    request = service_pb2.ModelInferRequest(model_name="film")
    for _ in range(10_000):
        request.outputs.add(name="label")
    code, sentence = refusal(port, request.SerializeToString())
    assert (code, sentence) == ("INVALID_ARGUMENT", "the message has more than 4096 fields")


def test_a_tensor_of_too_many_texts_is_not_read(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shape says so: two megabytes of zeros are half a million empty texts."""
    monkeypatch.setattr(inputs, "_elements", None)
    request = service_pb2.ModelInferRequest(model_name="film", raw_input_contents=[bytes(1_000_000)])
    request.inputs.add(name="text", datatype="BYTES", shape=[250_000])
    code, sentence = refusal(port, request.SerializeToString())
    assert (code, sentence) == ("INVALID_ARGUMENT", "input text has 250000 texts; at most 1024 are allowed")


def refusal(port: int, data: bytes) -> tuple[str, str]:
    """The code and the sentence of a call with these bytes as its message."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        ask = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        error = ask.future(data, metadata=metadata_of(KEY), timeout=60).exception()
    return error.code().name, error.details()


def test_it_loads_and_unloads(client: triton.InferenceServerClient, listening: Listening) -> None:
    owned = listening.service.catalog.get("default", "film").newest.owned
    client.load_model("film", headers=HEADERS)
    assert owned in listening.service.slots.device.pinned
    client.unload_model("film", headers=HEADERS)
    assert listening.service.catalog.pinned() == []


def code_of(call: Callable[..., object], *arguments: object, **options: object) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as raised:
        call(*arguments, **options)
    return str(raised.value.status()), raised.value.message()


def test_errors_have_the_codes_of_the_protocol(client: triton.InferenceServerClient, listening: Listening) -> None:
    """And the sentences of HTTP: no key, a wrong one, an unknown model, wrong tensors, a quota, and a load too much."""
    infer = client.infer
    assert code_of(infer, "film", [texts()])[0] == "StatusCode.UNAUTHENTICATED"
    assert code_of(infer, "film", [texts()], headers={"authorization": "Bearer x"})[0] == "StatusCode.UNAUTHENTICATED"
    missing = code_of(infer, "none", [texts()], headers=HEADERS)
    assert missing == ("StatusCode.NOT_FOUND", "adapter 'none' does not exist")
    wrong = code_of(infer, "nli", [texts()], headers=HEADERS)
    assert wrong[0] == "StatusCode.INVALID_ARGUMENT"
    assert "this task has text, text_pair" in wrong[1]
    assert code_of(infer, "film/ready", [texts()], headers=HEADERS)[0] == "StatusCode.INVALID_ARGUMENT"
    assert code_of(client.load_model, "film", config="{}", headers=HEADERS)[0] == "StatusCode.INVALID_ARGUMENT"
    body = {"tenant": "default", "scopes": ["predict"]}
    reader = {"authorization": f"Bearer {post(listening, '/v1/keys', body).json()['key']}"}
    assert code_of(client.load_model, "film", headers=reader)[0] == "StatusCode.PERMISSION_DENIED"
    quotas = f"{listening.url}/v1/tenants/default"
    httpx2.put(quotas, json={"max_concurrent_requests": 0}, headers=HEADERS, timeout=60).raise_for_status()
    assert code_of(infer, "film", [texts()], headers=HEADERS)[0] == "StatusCode.RESOURCE_EXHAUSTED"
    httpx2.put(quotas, json={}, headers=HEADERS, timeout=60).raise_for_status()


def test_a_caller_who_leaves_ends_its_work(stub, listening):
    """While its row waits to be computed."""
    begun, ended = threading.Event(), threading.Event()

    async def wait(*_: object, **__: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    request = service_pb2.ModelInferRequest(model_name="film")
    request.inputs.add(name="text", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"a good film")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listening.service.batcher, "compute", wait)
        call = stub.ModelInfer.future(request, metadata=metadata_of(KEY))
        assert begun.wait(60)
        call.cancel()
        assert ended.wait(60)


def test_the_deadline_of_a_call_is_its_timeout() -> None:
    """The shorter one of both, in microseconds; a call may have no deadline, or one beyond the longest timeout."""

    def timeout(seconds_left: float | None, given: int | None = None) -> int | None:
        request = proto.ModelInferRequest(model_name="film")
        if given is not None:
            request.parameters["timeout"].int64_param = given
        return json.loads(infer_call(request, seconds_left).body)["parameters"].get("timeout")

    assert timeout(None) is timeout(1e9) is None
    assert timeout(2.5) == 2_500_000
    assert (timeout(2.5, 1_000_000), timeout(2.5, 9_000_000), timeout(None, 7)) == (1_000_000, 2_500_000, 7)


def silent_calls(channel: grpc.Channel, count: int, key: str = "") -> list[Any]:
    """Calls whose messages never come."""
    call = channel.stream_unary(f"/{grpc_server._SERVICE}/ModelInfer")
    metadata = metadata_of(key) if key else ()
    return [call.future(iter(threading.Event().wait, None), metadata=metadata) for _ in range(count)]


def end_of(call: Any) -> tuple[str, str]:
    """The code and the sentence of a call that fails."""
    error = call.exception(timeout=60)
    return error.code().name, error.details()


def test_calls_without_a_key_take_no_place(stub, port, client):
    """Each is refused before its message is there; a probe is answered before."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for call in silent_calls(channel, 200) + silent_calls(channel, 1, "plt_another"):
            assert end_of(call)[0] == "UNAUTHENTICATED"
        probe = channel.stream_unary(f"/{grpc_server._SERVICE}/ServerLive")
        assert probe(iter(threading.Event().wait, None), timeout=60)
    assert client.is_model_ready("film", headers=HEADERS)


def test_a_tenant_leaves_places_to_others(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most six of eight are held by calls whose message does not come; after its deadline a place is free. A
    connection has no more of them."""
    monkeypatch.setattr(grpc_server, "_MAX_CALLS", 8)
    with listen(grpc_port=0, admin_key=KEY, stall_seconds=1) as started:
        other = started.add_tenant("predict").key
        address, own = f"127.0.0.1:{grpc_port(started.app)}", [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(address) as first, grpc.insecure_channel(address, options=own) as channel:
            calls = service_pb2_grpc.GRPCInferenceServiceStub(channel)

            def ask(key: str) -> str:
                return str(calls.ServerMetadata(service_pb2.ServerMetadataRequest(), metadata=metadata_of(key)).name)

            held = silent_calls(first, 6, KEY)
            wait_until(lambda: grpc_of(started.app)._calls.total == 6)
            (refused,) = silent_calls(channel, 1, KEY)
            assert refused.exception(timeout=60).code() is grpc.StatusCode.UNAVAILABLE
            assert refused.details().startswith("6 calls over gRPC of tenant 'default' are in progress; 1 more would")
            assert dict(refused.trailing_metadata()) == {"retry-after": "1"}
            assert ask(other) == "peltier"
            late = {end_of(call) for call in held}
            assert late == {("DEADLINE_EXCEEDED", "the message did not arrive within 1 s")}
            assert ask(KEY) == "peltier"
        with socket.create_connection(("127.0.0.1", grpc_port(started.app)), timeout=60) as connection:
            connection.sendall(PREFACE)
            assert frames.MAX_CONCURRENT_STREAMS + bytes([0, 0, 0, 6]) in connection.recv(1024)


def wait_until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_answer_that_nobody_takes_holds_no_place(listen: Listen) -> None:
    """After the time to take it; its bytes count until the connection ends, because gRPC keeps them."""
    with listen(grpc_port=0, admin_key=KEY, stall_seconds=0.5) as started:
        server, answer_bytes = grpc_of(started.app), started.app.state.preparation.answer_bytes
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as deaf:
            deaf.sendall(
                frames.beginning() + frames.call(0, "ServerLive") + frames.call(1, "ServerMetadata", **HEADERS)
            )
            wait_until(lambda: server._calls.total == 1 and server._probes.taken == 1 and answer_bytes.total > 0)
            wait_until(lambda: server._calls.total == server._probes.taken == 0)
            assert answer_bytes.total > 0
        wait_until(lambda: answer_bytes.total == 0)


def test_probes_leave_places_to_other_addresses(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most three of four are held by a caller who takes no answer."""
    monkeypatch.setattr(grpc_server, "_MAX_PROBES", 4)
    with listen(grpc_port=0, admin_key=KEY) as started:
        server = grpc_of(started.app)
        with socket.create_connection(("127.0.0.1", server.port), 60, source_address=("127.0.0.2", 0)) as deaf:
            deaf.sendall(frames.beginning() + b"".join(frames.call(number, "ServerLive") for number in range(20)))
            received = b""
            while b"3 probes over gRPC of ipv4:127.0.0.2 are in progress" not in received:
                received += deaf.recv(65_536)
            assert server._probes.taken == 3
            with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as other:
                assert other.is_server_live()


def test_connections_are_bounded(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    """A further one is closed before it hears anything, until another has ended."""
    monkeypatch.setattr(grpc_server, "MAX_CONNECTIONS", 2)
    with listen(grpc_port=0, admin_key=KEY) as started, ExitStack() as opened:
        port = grpc_port(started.app)

        def connect() -> grpc.Channel:
            own = [("grpc.use_local_subchannel_pool", 1)]
            channel = opened.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}", options=own))
            grpc.channel_ready_future(channel).result(60)
            return channel

        first, _ = connect(), connect()
        with socket.create_connection(("127.0.0.1", port), timeout=60) as third, suppress(ConnectionError):
            third.sendall(PREFACE)
            assert third.recv(1) == b""
        first.close()
        connect()


def test_a_connection_that_does_not_begin_is_closed(listen: Listen) -> None:
    """After the time that a request's head has."""
    with (
        listen(grpc_port=0, admin_key=KEY, stall_seconds=0.2) as started,
        socket.create_connection(("127.0.0.1", grpc_port(started.app)), timeout=60) as silent,
    ):
        while silent.recv(1024):
            pass


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate of `localhost` and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = folder / "tls.crt", folder / "tls.key"
    files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


def test_the_port_has_the_certificate_of_the_settings(listen, bert, make_artifact, tmp_path):
    """A client that trusts it gets answers; one that trusts others, and one without TLS, get none."""
    certificate, key = make_certificate(tmp_path)
    with listen(grpc_port=0, grpc_certificate=certificate, grpc_private_key=key, admin_key=KEY) as started:
        own = grpc_port(started.app)
        started.upload(make_artifact(bert, "compacter", name="film"), KEY)
        secure = {"ssl": True, "root_certificates": str(certificate)}
        with triton.InferenceServerClient(f"localhost:{own}", **secure) as client:
            assert client.is_server_ready()
            found = client.infer("film", [texts()], headers=HEADERS)
        right = post(started, "/v1/tasks/film/predict", {"inputs": list(TEXTS)}).json()["predictions"]
        assert [one.decode() for one in found.as_numpy("label")] == [one["label"] for one in right]
        for others in ({}, {"ssl": True}):
            with triton.InferenceServerClient(f"localhost:{own}", **others) as client:
                assert code_of(client.is_server_live)[0] == "StatusCode.UNAVAILABLE"


async def test_a_certificate_that_cannot_be_used_is_refused(tmp_path: Path, settings_of: Callable[..., object]) -> None:
    """In one sentence before the server listens: no file, another key, and a certificate alone."""
    certificate, key = make_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    _, other = make_certificate(tmp_path / "other")
    for wrong, reason in ((tmp_path / "none", "No such file or directory"), (other, "KEY_VALUES_MISMATCH")):
        settings = settings_of(grpc_port=0, grpc_certificate=certificate, grpc_private_key=wrong)
        with pytest.raises(SettingsError, match=rf"^TLS of gRPC cannot use {certificate} with .*{wrong}: {reason}$"):
            await GrpcServer(FastAPI(), settings).start()  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="needs both grpc_certificate and grpc_private_key"):
        settings_of(grpc_port=0, grpc_private_key=key)


# Triton's client makes the same calls in `make test`, over HTTP in protocols/oip/test_routes.py.
@pytest.mark.slow
def test_the_client_of_kserve_reads_answers(listening: Listening, port: int) -> None:
    """Over HTTP with tensors as JSON and as bytes, and over gRPC; equal to those of the native route."""
    script = Path(__file__).parent / "kserve_calls.py"
    command = [sys.executable, str(script), listening.url, f"127.0.0.1:{port}", KEY]
    environment = os.environ | {"PYTHONPATH": str(installed("kserve"))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    right = post(listening, "/v1/tasks/film/predict", {"inputs": list(TEXTS)}).json()["predictions"]
    scores = np.float32([list(one["scores"].values()) for one in right])
    for answer in (found["http"]["json"], found["http"]["binary"], found["grpc"]["infer"]):
        assert answer["labels"] == [one["label"] for one in right]
        np.testing.assert_allclose(np.float32(answer["scores"]), scores, rtol=2**-23)
        assert answer["model"] == "film"
    assert all(found[way][name] for way in ("http", "grpc") for name in ("live", "ready", "has_model"))


async def test_a_port_in_use_is_refused(listening: Listening, port: int, settings_of: Callable[..., object]) -> None:
    second = GrpcServer(listening.app, settings_of(grpc_port=port))  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=rf"^grpc_port {port} cannot be bound on 127.0.0.1: it may be in use$"):
        await second.start()
