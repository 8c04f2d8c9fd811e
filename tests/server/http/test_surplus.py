"""What is read beyond `max_connections`, over real sockets."""

from contextlib import ExitStack

import httpx2

from tests.server.conftest import Listen

MANY = 3


def test_beyond_the_most_connections_only_probes_are_answered(listen: Listen) -> None:
    """Others read 503 and are closed; open connections continue, and one that closes makes room."""
    with listen(max_connections=MANY) as listening, ExitStack() as others:
        clients = [others.enter_context(httpx2.Client(base_url=listening.url)) for _ in range(MANY)]
        assert [client.get("/info").status_code for client in clients] == [200] * MANY
        refused = httpx2.get(f"{listening.url}/info")
        assert refused.json()["error"]["message"] == "3 connections are open, and this server holds no more"
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.headers["connection"] == "close"
        assert "x-request-id" in refused.headers
        for path in ("/health", "/ready"):
            assert httpx2.get(f"{listening.url}{path}").status_code == 200
        sent = httpx2.post(f"{listening.url}/v1/predict", content=bytes(2**20))
        assert sent.status_code == 503
        assert clients[0].get("/info").status_code == 200
        clients[0].close()
        while httpx2.get(f"{listening.url}/info").status_code == 503:
            pass
