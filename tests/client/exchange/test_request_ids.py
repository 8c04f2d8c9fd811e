"""An answer is that to the request."""

from typing import Any

import pytest
from peltier_client import AsyncClient, Client, ConnectionFailed

from tests.client.conftest import Answer, LittleServer, answer_for, events_for

_ANOTHER = f"peltier-{'0' * 32}"


def _answer(request_id: str | None) -> Answer:
    return Answer(200, answer_for("sst2", 1), {} if request_id is None else {"x-request-id": request_id})


def test_every_attempt_has_an_id_of_its_own(client: Client, server: LittleServer, refuse: Any) -> None:
    """Of 128 random bits; the answer's id is the one that feedback names."""
    server.planned.append(refuse(503, "not_ready"))
    found = client.predict("sst2", "text")
    first, second = (one.headers["x-request-id"] for one in server.received)
    assert first != second
    assert found.request_id == second


async def test_the_answer_to_another_request_is_an_error(
    client: Client, async_client: AsyncClient, server: LittleServer
) -> None:
    """It names both ids, and its connection is not used again: the next answer is the own one."""
    for _ in range(2):
        server.planned.append(_answer(_ANOTHER))
    with pytest.raises(ConnectionFailed, match=f"gave the answer to another request: its x-request-id is {_ANOTHER}"):
        client.predict("sst2", "text")
    with pytest.raises(ConnectionFailed, match=server.received[-1].headers["x-request-id"] + "|gave the answer"):
        await async_client.predict("sst2", "text")
    assert client.predict("sst2", "text")[0].label == "positive"
    assert (await async_client.predict("sst2", "text"))[0].label == "positive"


async def test_the_stream_of_another_request_is_an_error(
    client: Client, async_client: AsyncClient, server: LittleServer
) -> None:
    """Before its first piece."""
    for _ in range(2):
        stream = events_for("e2e")
        stream.headers["x-request-id"] = _ANOTHER
        server.planned.append(stream)
    with pytest.raises(ConnectionFailed, match="gave the answer to another request"):
        next(client.stream("e2e", "text"))
    with pytest.raises(ConnectionFailed, match="gave the answer to another request"):
        await anext(async_client.stream("e2e", "text"))


@pytest.mark.parametrize("given", ["", "7b1f0c", "f00, {own}", "{own}, f00"])
def test_proxies_may_replace_the_id(client: Client, server: LittleServer, given: str) -> None:
    """By one of their own form, or by none, and may add theirs."""
    answer = _answer("")
    server.planned.append(answer)

    def fill() -> None:
        answer.headers["x-request-id"] = given.format(own=server.received[-1].headers["x-request-id"])

    answer.before = fill
    assert client.predict("sst2", "text")[0].label == "positive"


def test_uploads_have_an_id_too(client: Client, server: LittleServer) -> None:
    """They are forms, and no JSON."""
    client.upload(b"artifact", name="sst2")
    assert server.received[0].headers["x-request-id"].startswith("peltier-")
