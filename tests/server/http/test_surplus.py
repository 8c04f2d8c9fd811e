"""What is read beyond `max_connections`, over real sockets."""

import socket
from contextlib import ExitStack, suppress

import httpx2
import pytest
from peltier_server.http import connection

from tests.server.conftest import Listen

MANY = 3


def test_beyond_the_most_connections_only_probes_are_answered(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others read 503 and are closed; open connections continue, and one that closes makes room."""
    monkeypatch.setattr(connection, "_SURPLUS_SECONDS", 60)
    with listen(max_connections=MANY) as listening, ExitStack() as others:
        clients = [others.enter_context(httpx2.Client(base_url=listening.url, timeout=60)) for _ in range(MANY)]
        assert [client.get("/info").status_code for client in clients] == [200] * MANY
        refused = httpx2.get(f"{listening.url}/info", timeout=60)
        assert refused.json()["error"]["message"] == "3 connections are open, and this server holds no more"
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.headers["connection"] == "close"
        assert "x-request-id" in refused.headers
        for path in ("/health", "/ready"):
            assert httpx2.get(f"{listening.url}{path}", timeout=60).status_code == 200
        sent = httpx2.post(f"{listening.url}/v1/predict", content=bytes(2**20), timeout=60)
        assert sent.status_code == 503
        assert clients[0].get("/info").status_code == 200
        clients[0].close()
        while httpx2.get(f"{listening.url}/info", timeout=60).status_code == 503:
            pass


def test_an_idle_connection_makes_room_for_a_new_one(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest idle one, whether it has never sent a request or waits for the next; none with a request."""
    monkeypatch.setattr(connection, "_KEPT_IDLE", 1)
    with listen(max_connections=MANY) as listening, ExitStack() as others:
        url = httpx2.URL(listening.url)

        def connect() -> socket.socket:
            return others.enter_context(socket.create_connection((url.host, url.port or 0), timeout=60))

        busy, silent = connect(), connect()
        busy.sendall(b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{")
        waits = others.enter_context(httpx2.Client(base_url=listening.url, timeout=60))
        assert waits.get("/info").status_code == 200
        for _ in range(2 * MANY):
            newcomer = connect()
            newcomer.sendall(b"GET /info HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert newcomer.recv(12) == b"HTTP/1.1 200"
        with suppress(ConnectionError):
            assert silent.recv(1) == b""
        busy.sendall(b"}")
        assert busy.recv(12) == b"HTTP/1.1 400"
