"""Texts as they are written, over a real socket, with both clients."""

import pytest
from peltier_client import (
    AdapterNotFound,
    AsyncClient,
    Client,
    ConnectionFailed,
    DeadlinePassed,
    UnexpectedAnswer,
)

from tests.client.conftest import PIECES


def test_pieces_then_the_whole(client: Client, server) -> None:
    """The pieces as they were sent, and the answer that `predict` would have given."""
    stream = client.stream("e2e", "name[Aromi]", max_new_tokens=5)
    assert not server.received, "nothing is asked before the first piece is wanted"
    assert list(stream) == PIECES
    assert stream.predictions is not None
    assert stream.predictions[0].text == "".join(PIECES)
    assert stream.predictions.usage.completion_tokens == 4
    assert server.received[0].headers["authorization"] == "Bearer plt_secret"
    assert server.received[0].body == b'{"inputs":"name[Aromi]","parameters":{"max_new_tokens":5},"stream":true}'


async def test_the_same_for_asynchronous_code(async_client: AsyncClient) -> None:
    """`async for` over the pieces."""
    stream = async_client.stream("e2e", ("a", "b"))
    assert [piece async for piece in stream] == PIECES
    assert stream.predictions is not None
    assert stream.predictions.adapter.name == "e2e"


def test_a_stream_says_what_was_truncated(client: Client) -> None:
    """With the whole answer; a server that says nothing of it truncated nothing."""
    for task, num_truncated in (("e2e-short", 1), ("e2e", 0)):
        stream = client.stream(task, "text")
        assert [*stream] == PIECES
        assert stream.predictions is not None
        assert stream.predictions.usage.truncated_inputs == num_truncated


async def test_errors_before_the_first_piece(client: Client, async_client: AsyncClient, server, refuse):
    """Are those of any call, tried again where that helps."""
    server.planned.append(refuse(404, "adapter_not_found", "no adapter 'x'"))
    with pytest.raises(AdapterNotFound, match="no adapter 'x'"):
        next(client.stream("x", "text"))
    server.planned.append(refuse(503, "queue_full", retry_after="0"))
    assert "".join(client.stream("e2e", "text")) == "".join(PIECES)
    server.planned.append(refuse(503, "queue_full", retry_after="0"))
    assert "".join([piece async for piece in async_client.stream("e2e", "text")]) == "".join(PIECES)


def test_errors_in_the_middle(client: Client, server, stream_of) -> None:
    """Come after the pieces, as the same exceptions."""
    error = 'event: error\ndata: {"error": {"code": "deadline_passed", "message": "too late", "details": []}}'
    server.planned.append(stream_of('data: {"index": 0, "text": "a"}', error))
    stream = client.stream("e2e", "text")
    assert next(stream) == "a"
    with pytest.raises(DeadlinePassed, match="too late"):
        next(stream)
    assert stream.predictions is None


async def test_a_stream_that_breaks_off_is_no_answer(
    client: Client, async_client: AsyncClient, server, stream_of
) -> None:
    """Neither between two events nor in the middle of one."""
    whole, broken = (stream_of('data: {"index": 0, "text": "a"}') for _ in range(2))
    broken.headers |= {"content-length": "1000", "connection": "close"}
    for sent, sentence in ((whole, "before the text was complete"), (broken, "broke")):
        server.planned.append(sent)
        with pytest.raises(ConnectionFailed, match=sentence):
            list(client.stream("e2e", "text"))
        server.planned.append(sent)
        with pytest.raises(ConnectionFailed, match=sentence):
            [piece async for piece in async_client.stream("e2e", "text")]


def test_answers_of_others_are_recognised(client: Client, server, answer, stream_of) -> None:
    """A proxy's page, and events that do not belong to a text."""
    server.planned.append(answer(200, b"<html>", {"content-type": "text/html"}))
    with pytest.raises(UnexpectedAnswer, match="answered with 'text/html' where events were expected"):
        next(client.stream("e2e", "text"))
    for strange in ("data: {}", "data: nonsense", "event: error\ndata: 5"):
        server.planned.append(stream_of(strange))
        with pytest.raises(UnexpectedAnswer, match="does not belong to a text"):
            next(client.stream("e2e", "text"))


async def test_leaving_early_hangs_up(client: Client, async_client: AsyncClient, server) -> None:
    """The rest is not waited for, and the client goes on."""
    with client.stream("e2e", "text") as stream:
        assert next(stream) == PIECES[0]
    assert list(stream) == []
    async with async_client.stream("e2e", "text") as later:
        assert await anext(later) == PIECES[0]
    assert [piece async for piece in later] == []
    assert client.predict("sst2", "text")[0].label == "positive"


def test_pieces_come_as_they_are_sent(client: Client, server, stream_of) -> None:
    """The first is there before the last, which never comes."""
    sent = stream_of('data: {"index": 0, "text": "a"}')
    sent.body, sent.headers["content-length"] = sent.body, str(len(sent.body) + 14)
    server.planned.append(sent)
    stream = client.stream("e2e", "text")
    assert next(stream) == "a"
    stream.close()
