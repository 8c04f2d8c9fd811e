"""Hostile requests over a socket: each ends, and the server holds nothing of it.

`tests/server/test_hostile_requests.py` has all kinds, against a process whose memory and seconds it measures."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from peltier_server.http import incoming

from tests.server.attacker import listen as heard
from tests.server.attacker import post, status_of
from tests.server.conftest import Listen, Listening
from tests.server.test_hostile_requests import FORMS, MAX_ARTIFACT_BYTES, PREDICT, chunked_head, half_bodies

_PIECE = b"10000\r\n" + b"a" * 65536 + b"\r\n"


@pytest.fixture(scope="module")
def impatient(listen: Listen) -> Iterator[Listening]:
    with listen(stall_seconds=0.5) as started:
        yield started


@pytest.fixture(scope="module")
def target(listen: Listen) -> Iterator[Listening]:
    with listen(max_artifact_bytes=MAX_ARTIFACT_BYTES) as started:
        yield started


@pytest.fixture(autouse=True)
def _holds_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    server: Listening = request.getfixturevalue("impatient" if "impatient" in request.fixturenames else "target")
    assert httpx2.get(f"{server.url}/ready", timeout=60).status_code == 200
    deadline = time.monotonic() + 60
    while server.app.state.preparation.body_bytes.total:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def connect(server: Listening) -> socket.socket:
    url = httpx2.URL(server.url)
    return socket.create_connection((url.host, url.port), timeout=60)


def say(server: Listening, request: bytes) -> int:
    with connect(server) as connection:
        connection.sendall(request)
        return status_of(heard(connection))


def test_a_body_that_stops_is_answered(impatient: Listening) -> None:
    """Half a body, and then nothing: 408 once the server has waited, on every kind of route."""
    halves = half_bodies()
    with ThreadPoolExecutor(len(halves)) as pool:
        statuses = pool.map(lambda half: say(impatient, half), halves.values())
        assert dict(zip(halves, statuses, strict=True)) == dict.fromkeys(halves, 408)


@pytest.mark.parametrize("path", [PREDICT, "/v1/adapters", "/info"])
def test_a_chunked_body_without_end_is_cut_off(target: Listening, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the route reads its body or not, soon after the answer."""
    monkeypatch.setattr(incoming, "_MAX_LINGER_SECONDS", 0.05)
    with connect(target) as connection:
        connection.sendall(chunked_head(path))
        with pytest.raises(ConnectionError):
            _flood(connection)


def _flood(connection: socket.socket) -> None:
    for _ in range(4096):
        connection.sendall(_PIECE)


@pytest.mark.parametrize("form", FORMS)
def test_a_hostile_form_is_refused(target: Listening, form: str) -> None:
    assert say(target, FORMS[form]) in (400, 413, 422)


@pytest.mark.parametrize("length", ["-1", "two", str(2**64)])
def test_a_length_that_is_none_is_refused(target: Listening, length: str) -> None:
    assert say(target, post(PREDICT, b"{}", length=length)) == 400
