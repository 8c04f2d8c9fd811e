"""What is read beyond `max_connections`, over real sockets."""

from contextlib import ExitStack

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
