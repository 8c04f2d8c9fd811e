"""The synchronous client."""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import stamina
from peltier_client import (
    AdapterNotFound,
    Client,
    ConnectionFailed,
    InvalidInput,
    NotFound,
    Predictions,
    QueueFull,
    QuotaExceeded,
    ServerError,
    TimedOut,
    Unavailable,
    UnexpectedAnswer,
)
from peltier_client.protocol.administration import RateUsage
from stamina.instrumentation import set_on_retry_hooks

from tests.client.conftest import INFO, PIECES, Answer

KEY_TEXT = f"plt_abcdefgh_{'x' * 43}"


@pytest.fixture
def client(server) -> Iterator[Client]:
    with Client(server.url, api_key="plt_secret") as client:
        yield client


def test_embeddings_are_lists_of_numbers(client: Client) -> None:
    """One for each text; a task that embeds nothing says so."""
    assert client.embed("vectors", ["a", "b"], dimensions=6) == [[0.5, -0.25, 0.125, 1e-9, 0.75, 0.5]] * 2
    with pytest.raises(InvalidInput, match=r"^task 'sst2' does not embed texts$"):
        client.embed("sst2", "a")


def test_predict_gives_labels(client: Client) -> None:
    """The line of the README works, and the answer says where it came from."""
    predictions = client.predict("sst2", ["a gem of a film", "another"])
    assert [prediction.label for prediction in predictions] == ["positive", "positive"]
    assert predictions[0].score == 0.98
    assert predictions[0].scores == {"negative": 0.02, "positive": 0.98}
    assert len(predictions[0:1]) == 1
    assert (predictions.task, predictions.adapter.version, predictions.usage.tokens) == ("sst2", 1, 12)
    assert (predictions.timings_ms.compute, predictions.batch.adapters) == (7.9, 17)


def test_each_kind_of_task_sets_its_fields(client: Client) -> None:
    """Regression has a value, multilabel has labels, and what a kind lacks is None."""
    number = client.predict("stsb", [("a", "b")])[0]
    assert (number.value, number.label, number.scores) == (3.7, None, None)
    assert client.predict("tags", "text")[0].labels == ["a", "b"]
    predictions = client.predict("e2e", "text")
    assert (predictions[0].text, predictions[0].finish_reason, predictions[0].label) == ("".join(PIECES), "stop", None)
    assert predictions.usage.completion_tokens == 4


def test_the_key_and_the_parameters_travel(client: Client, server) -> None:
    """The key is sent as a bearer token and only what was asked for is in the body."""
    client.predict("default:sst2@1", "text", top_k=2, truncate=False)
    received = server.received[0]
    assert received.path == "/v1/tasks/default:sst2@1/predict"
    assert received.headers["authorization"] == "Bearer plt_secret"
    assert received.body == b'{"inputs":"text","parameters":{"top_k":2,"truncate":false}}'


def test_predict_many_keeps_the_order(client: Client) -> None:
    """Answers and errors come in the order of the questions."""
    first, second, third = client.predict_many([("sst2", "…"), ("missing", "…"), ("stsb", ("premise", "hypothesis"))])
    assert isinstance(first, Predictions)
    assert first[0].label == "positive"
    assert isinstance(second, AdapterNotFound)
    assert isinstance(third, Predictions)
    assert third[0].value == 3.7


def test_upload_from_a_path_and_from_bytes(client: Client, server, tmp_path: Path) -> None:
    """Both send the same multipart form, with the name only where one is given."""
    path = tmp_path / "film.safetensors"
    path.write_bytes(b"artifact")
    assert client.upload(path, name="sst2").version == 1
    assert client.upload(b"artifact").digest.startswith("sha256:")
    first, second = (request.body for request in server.received)
    assert b'filename="film.safetensors"' in first
    assert b'name="name"\r\n\r\nsst2' in first
    assert b"artifact" in second
    assert b'name="name"' not in second


def test_adapters_follow_the_pages(client: Client, server) -> None:
    """Iteration fetches a page only when it is reached."""
    adapters = client.adapters()
    assert next(adapters).name == "nli"
    assert len(server.received) == 1
    assert [adapter.name for adapter in adapters] == ["sst2", "stsb"]
    assert "cursor=next" in server.received[1].path


def test_download_is_bit_identical(client: Client, tmp_path: Path) -> None:
    """The file holds the uploaded bytes and nothing lies beside it."""
    assert client.download("sst2", 1, tmp_path / "a.safetensors").read_bytes() == b"artifact"
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_damaged_download_is_not_written(client: Client, server, answer, tmp_path: Path) -> None:
    """Bytes that do not have the announced digest leave the file as it was."""
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"old")
    server.planned.append(answer(200, b"artifaxt", {"x-adapter-digest": client.adapter("sst2").latest.digest}))
    with pytest.raises(UnexpectedAnswer, match="digest"):
        client.download("sst2", 1, path)
    assert path.read_bytes() == b"old"


def test_not_ready_is_an_answer(client: Client, server, refuse) -> None:
    """A loading server is not ready, asked once and without an exception."""
    server.planned.append(refuse(503, "not_ready", retry_after="1"))
    assert client.ready() is False
    assert len(server.received) == 1


def test_an_error_body_is_raised_as_its_class(client: Client, server, refuse) -> None:
    """Code, sentence and details arrive, and such errors are not tried again."""
    server.planned.append(refuse(404, "adapter_not_found", "no adapter 'sst2'"))
    with pytest.raises(AdapterNotFound, match="no adapter 'sst2'") as caught:
        client.predict("sst2", "text")
    assert caught.value.details == ["reason"]
    assert len(server.received) == 1


def test_503_then_200_is_one_call(client: Client, server, refuse) -> None:
    """A full queue is waited out for as long as the server asks."""
    server.planned.append(refuse(503, "queue_full", retry_after="1"))
    started = time.monotonic()
    assert client.predict("sst2", "text")[0].label == "positive"
    assert time.monotonic() - started >= 1.0
    assert len(server.received) == 2


def test_an_upload_is_sent_whole_again(client: Client, server, refuse) -> None:
    """The second attempt carries the same file as the first."""
    server.planned.append(refuse(429, "quota_exceeded", retry_after="0"))
    client.upload(b"artifact", name="sst2")
    assert all(b"artifact" in request.body and b"sst2" in request.body for request in server.received)
    assert len(server.received) == 2


def test_a_long_pause_is_left_to_the_caller(client: Client, server, refuse) -> None:
    """A quota that opens in ten minutes is raised at once, with the seconds to wait."""
    server.planned.append(refuse(429, "quota_exceeded", retry_after="600"))
    with pytest.raises(QuotaExceeded) as caught:
        client.predict("sst2", "text")
    assert caught.value.retry_after == 600
    assert len(server.received) == 1


def test_attempts_are_bounded(server, refuse) -> None:
    """A server that stays full is asked as often as allowed, then its error is raised."""
    server.planned.extend(refuse(503, "queue_full", retry_after="0") for _ in range(5))
    with Client(server.url, max_attempts=3) as client, pytest.raises(QueueFull):
        client.predict("sst2", "text")
    assert len(server.received) == 3


@pytest.fixture
def retries(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What is logged of retries, also in a process that has run a command, which logs none."""
    set_on_retry_hooks(None)
    caplog.set_level(logging.WARNING, "stamina")
    return caplog


def test_a_refused_connection_is_tried_again(closed_url: str, retries: pytest.LogCaptureFixture) -> None:
    """Nothing listening is retried, then said with the address."""
    with (
        Client(closed_url, max_attempts=2) as client,
        pytest.raises(ConnectionFailed, match=f"no connection to {closed_url}"),
    ):
        client.predict("sst2", "text")
    assert len(retries.records) == 1


def test_health_is_asked_once(closed_url: str, retries: pytest.LogCaptureFixture) -> None:
    """Who asks for health wants to know now."""
    with Client(closed_url) as client, pytest.raises(ConnectionFailed):
        client.health()
    assert not retries.records


def test_silence_is_a_timeout(server, answer) -> None:
    """A server that does not answer in time is not asked again: it may be at work."""
    asked, release = threading.Event(), threading.Event()

    def hang() -> None:
        asked.set()
        release.wait()

    server.planned.append(answer(before=hang))
    with Client(server.url, timeout=0.1) as client, pytest.raises(TimedOut, match=r"did not answer within 0\.1 s"):
        client.predict("sst2", "text")
    assert asked.wait(60)
    release.set()
    assert len(server.received) == 1


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"{}", b"[]", b'{"task": 1}', b"\xff", {"task": "sst2", "predictions": []}]
)
def test_a_malformed_answer_is_one_error(client: Client, server, answer, body: object) -> None:
    """A success that is not the protocol's is UnexpectedAnswer, whatever it holds."""
    server.planned.append(answer(200, body))
    with pytest.raises(UnexpectedAnswer) as caught:
        client.predict("sst2", "text")
    assert caught.value.status == 200


@pytest.mark.parametrize(
    ("status", "cls"), [(307, UnexpectedAnswer), (404, UnexpectedAnswer), (502, UnexpectedAnswer), (500, ServerError)]
)
def test_a_foreign_error_page(client: Client, server, answer, status: int, cls: type[Exception]) -> None:
    """Pages of proxies and other services never escape as anything but a PeltierError."""
    body = {"error": {"code": "internal_error", "message": "why"}} if cls is ServerError else b"<html>"
    server.planned.append(answer(status, body, {"location": "/elsewhere"}))
    with pytest.raises(cls):
        client.info()


def test_a_broken_answer_is_a_failed_connection(client: Client, server, answer) -> None:
    """An answer cut short is not retried, because it may have done its work."""
    server.planned.append(answer(200, b"{", {"content-length": "99", "connection": "close"}))
    with pytest.raises(ConnectionFailed, match="broke"):
        client.delete("sst2")
    assert len(server.received) == 1


def test_the_key_is_never_shown(server) -> None:
    """Neither the client's repr nor a refused key's message holds the key."""
    with Client(server.url.replace("//", "//user:plt_pass@"), api_key="plt_secret") as client:
        assert "plt_" not in repr(client) + str(vars(client)["_sender"].connection)
    with pytest.raises(InvalidInput) as caught:
        Client(api_key="plt_secret\n")
    assert "plt_" not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", "", "http://host:port"])
def test_a_wrong_url_is_refused_at_once(url: str) -> None:
    """An address that cannot be a server's is an error of the constructor."""
    with pytest.raises(InvalidInput, match=r"url|URL"):
        Client(url)


def test_a_server_below_a_path(server) -> None:
    """A URL with a path of its own is a prefix of every call."""
    with Client(f"{server.url}/peltier/") as client, pytest.raises(AdapterNotFound):
        client.info()
    assert server.received[0].path == "/peltier/info"


def test_threads_share_a_client(client: Client) -> None:
    """Calls from several threads do not disturb each other."""
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: counts.append(len(client.predict("sst2", ["x"] * n)))) for n in range(1, 9)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(counts) == list(range(1, 9))


def test_retries_can_be_switched_off(server, refuse) -> None:
    """stamina's own switch governs the client, as tests of applications expect."""
    server.planned.append(refuse(503, "queue_full"))
    stamina.set_active(False)
    try:
        with Client(server.url) as client, pytest.raises(QueueFull):
            client.predict("sst2", "text")
    finally:
        stamina.set_active(True)


def test_a_program_decides_whether_retries_are_written(server, refuse) -> None:
    """A program that configures no logging writes nothing of them; one that does sees the reason of each."""
    server.planned.append(refuse(503, "queue_full", "it was not configured", retry_after="0"))
    server.planned.extend([Answer(200, INFO), refuse(503, "queue_full", "the queue is full", retry_after="0")])
    program = (
        f"import logging; from peltier_client import Client; client = Client({server.url!r}); client.info();"
        "logging.basicConfig(level='INFO'); client.info()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "retrying after: the queue is full" in done.stderr
    assert "it was not configured" not in done.stderr
    assert done.stderr.startswith("INFO:")


def test_a_rollback_is_sent_once(client: Client, server, refuse) -> None:
    """A second one would go one more step back, and the first may have been done."""
    server.planned.append(refuse(503, "unavailable"))
    with pytest.raises(Unavailable):
        client.rollback_alias("sst2", "live")
    assert len(server.received) == 1


def test_keys_and_tenants(client: Client) -> None:
    """Each call with its typed answer; a key is in no repr."""
    made = client.create_key("predict", "publish", tenant="default", note="n")
    assert (made.key, made.prefix, made.note) == (KEY_TEXT, "abcdefgh", "n")
    assert KEY_TEXT not in repr(made)
    assert [key.revoked_at is None for key in client.keys("default")] == [True, False]
    client.revoke_key("abcdefgh")
    with pytest.raises(NotFound):
        client.revoke_key("zzzzzzzz")
    assert client.create_tenant("b", max_adapters=3).quotas.max_adapters == 3
    assert [tenant.name for tenant in client.tenants()] == ["default", "other"]
    assert client.tenant("default").quotas.max_concurrent_requests == 8
    assert client.tenant_usage("default").tokens == RateUsage(used=3, limit=50, seconds=10)
    assert client.set_tenant("default", weight=2).quotas.max_concurrent_requests is None


def test_an_unexpected_answer_says_why(client: Client, server, answer) -> None:
    """The message names the type and the first thing wrong."""
    server.planned.append(answer(200, {"status": "fine"}))
    with pytest.raises(UnexpectedAnswer, match="not the expected HealthResponse: status: input should be 'ok'"):
        client.health()


def test_a_part_without_blocks_has_none(client: Client, server, answer) -> None:
    """Golden examples are as in the artifact."""
    body = {"manifest": {"golden": [{"input": "good"}]}, "parts": [{"kind": "head", "parameters": 4}]}
    server.planned.append(answer(200, body))
    found = client.manifest("sst2", 3)
    assert found.manifest["golden"] == [{"input": "good"}]
    assert [(part.parameters, part.blocks) for part in found.parts] == [(4, [])]


def test_the_bytes_of_a_file(client, server, answer):
    """As they are, also where they are no text."""
    server.planned.append(answer(200, b"\xff\x00"))
    assert client.files.content("file_1") == b"\xff\x00"
