"""A streamed answer without a server."""

import asyncio

import pytest
from peltier_backbone.backbone import Backbone
from peltier_client.errors import InferenceFailed
from peltier_client.protocol import AdapterRef, TextPrediction
from peltier_server.inference.prediction import PhaseTimes, Prediction, StreamStart
from peltier_server.inference.text_stream import StreamedText
from peltier_server.queue.ticket import NewTokens

ADAPTER = AdapterRef(tenant="default", name="say", version=1, digest="sha256:0", preset="bitfit")
OPENING = StreamStart(ADAPTER, "device", 3, 0)


def answer(text: str, num_tokens: int) -> Prediction:
    """The answer with this text."""
    prediction = TextPrediction(text=text, score=0.5, finish_reason="stop")
    return Prediction(OPENING, [prediction], num_tokens, PhaseTimes(0.0, 0.0, 0.0, 0.0), 1, 1, 100)


async def write(stream: StreamedText, ids: list[int], result: Prediction | Exception) -> Prediction:
    """Says `ids` one by one, then gives or raises `result`."""
    stream.open(OPENING)
    for one in ids:
        await asyncio.sleep(0)
        stream.on_progress(NewTokens((one,), 0.0, 0.0))
    if isinstance(result, Exception):
        raise result
    return result


async def test_pieces_are_the_text(t5: Backbone) -> None:
    """What tokens do not spell comes at the end, with the whole count."""
    stream, ids = StreamedText(t5.tokenizer), list(t5.tokenizer.ids("a good film"))
    stream.start(write(stream, ids, answer("a good film!", 9)))
    assert (await stream.begin()).num_tokens == 3
    assert [piece async for piece in stream.pieces()] == ["a", " good", " film", "!"]
    assert stream.num_new_tokens == 9


async def test_a_text_without_tokens_begins_with_its_end(t5: Backbone) -> None:
    """The caller does not wait for a first token."""
    stream = StreamedText(t5.tokenizer)
    stream.start(write(stream, [], answer("", 0)))
    await stream.begin()
    assert [piece async for piece in stream.pieces()] == []
    assert stream.first is None


async def test_what_goes_wrong_is_raised_where_it_happens(t5: Backbone) -> None:
    """Before the first token by `begin`, after it by the pieces."""
    ids = list(t5.tokenizer.ids("a good"))
    early = StreamedText(t5.tokenizer)
    early.start(write(early, [], InferenceFailed("no")))
    with pytest.raises(InferenceFailed):
        await early.begin()
    late = StreamedText(t5.tokenizer)
    late.start(write(late, ids, InferenceFailed("no")))
    await late.begin()
    pieces = late.pieces()
    assert [await anext(pieces), await anext(pieces)] == ["a", " good"]
    with pytest.raises(InferenceFailed):
        await anext(pieces)


async def test_closing_ends_the_work(t5: Backbone) -> None:
    """In every state of the text."""
    stream = StreamedText(t5.tokenizer)
    cancelled = asyncio.Event()

    async def work() -> Prediction:
        try:
            return await asyncio.Future()
        finally:
            cancelled.set()

    stream.start(work())
    await asyncio.sleep(0)
    stream.close()
    await asyncio.wait_for(cancelled.wait(), 5)
