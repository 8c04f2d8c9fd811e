"""A streamed text that ends at its first stop sequence, without a server."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.tokenizer import Tokenizer
from peltier_client.errors import InferenceFailed
from peltier_client.protocol.predict import AdapterRef, TextPrediction
from peltier_server.inference.prediction import PhaseTimes, Prediction, StreamStart
from peltier_server.inference.text_stream import Detokenizer, StopSequences, StopSequenceStream, StreamedText
from peltier_server.queue.ticket import NewTokens
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers

ADAPTER = AdapterRef(tenant="default", name="say", version=1, digest="sha256:0", preset="bitfit")
OPENING = StreamStart(ADAPTER, "device", 3, 0)

TEXTS = st.text("ab", max_size=12)


def byte_fallback() -> Tokenizer:
    """As mT5's: pieces of words, and the 256 bytes for what they cannot spell."""
    pieces = [("<unk>", 0.0), *((f"<0x{byte:02X}>", -9.0) for byte in range(256))]
    fast = FastTokenizer(models.Unigram([*pieces, ("▁", -2.0), ("▁a", -2.0), ("bc", -2.0)], 0, byte_fallback=True))
    fast.add_special_tokens(["<unk>"])
    fast.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    fast.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    return Tokenizer(fast)


@pytest.fixture(scope="module", params=["pieces", "bytes", "fallback"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "fallback":
        return byte_fallback()
    backbone: Backbone = request.getfixturevalue({"pieces": "t5", "bytes": "roberta"}[request.param])
    return backbone.tokenizer


def pieces_of(tokenizer: Tokenizer, ids: Sequence[int], sizes: Sequence[int]) -> list[str]:
    """The text pieces, token by token or in larger steps, and at the end."""
    detokenizer, pieces, start = Detokenizer(tokenizer), [], 0
    for size in sizes:
        pieces.append(detokenizer.push(ids[start : start + size]))
        start += size
    pieces.append(detokenizer.push(ids[start:]))
    return [*pieces, detokenizer.end(tokenizer.decode(ids))]


@given(text=st.text(max_size=30), sizes=st.lists(st.integers(0, 3), max_size=40))
def test_texts_come_whole(tokenizer: Tokenizer, text: str, sizes: list[int]) -> None:
    """The pieces together are the text, and none of them ends within a character."""
    ids = tokenizer.ids(text)
    pieces = pieces_of(tokenizer, ids, sizes)
    assert "".join(pieces) == tokenizer.decode(ids)


@given(data=st.data(), sizes=st.lists(st.integers(0, 3), max_size=40))
def test_any_tokens_come_whole(tokenizer: Tokenizer, data: st.DataObject, sizes: list[int]) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.num_entries - 1), max_size=30))
    assert "".join(pieces_of(tokenizer, ids, sizes)) == tokenizer.decode(ids)


@pytest.mark.parametrize("text", ["naïve", "日本語", "🎬 a"])
def test_a_character_waits_for_all_of_its_bytes(text: str) -> None:
    tokenizer = byte_fallback()
    ids = tokenizer.ids(text)
    pieces = pieces_of(tokenizer, ids, [1] * len(ids))
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) == tokenizer.decode(ids)


def test_ordinary_tokens_come_at_once(t5: Backbone) -> None:
    ids = t5.tokenizer.ids("the film was good")
    assert pieces_of(t5.tokenizer, ids, [1] * len(ids))[:4] == ["the", " film", " was", " good"]


def answer(text: str, num_tokens: int) -> Prediction:
    """The answer with this text."""
    prediction = TextPrediction(text=text, score=0.5, finish_reason="stop")
    return Prediction(OPENING, [prediction], num_tokens, PhaseTimes(0.0, 0.0, 0.0, 0.0), 1, 1)


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
    stream, ids = StreamedText(t5.tokenizer), list(t5.tokenizer.ids("a good film"))
    stream.start(write(stream, ids, answer("a good film!", 9)))
    assert (await stream.begin()).num_tokens == 3
    assert [piece async for piece in stream.pieces()] == ["a", " good", " film", "!"]
    assert stream.num_new_tokens == 9


async def test_a_text_without_tokens_begins_with_its_end(t5: Backbone) -> None:
    stream = StreamedText(t5.tokenizer)
    stream.start(write(stream, [], answer("", 0)))
    await stream.begin()
    assert [piece async for piece in stream.pieces()] == []
    assert stream.first is None


async def test_what_goes_wrong_is_raised_where_it_happens(t5: Backbone) -> None:
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
    await asyncio.wait_for(cancelled.wait(), 60)


@given(pieces=st.lists(TEXTS, max_size=8), stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=4))
def test_a_text_ends_before_its_first_stop(pieces: list[str], stops: list[str]) -> None:
    cutter, sent = StopSequences(stops), ""
    for number, piece in enumerate(pieces):
        sent += cutter.push(piece)
        so_far = "".join(pieces[: number + 1])
        places = [so_far.find(stop) for stop in stops if stop in so_far]
        assert cutter.found == bool(places)
        if places:
            assert sent == so_far[: min(places)]
            return
        assert so_far.startswith(sent)
    assert sent + cutter.end() == "".join(pieces)


def test_what_cannot_begin_a_stop_is_not_held_back() -> None:
    """A caller waits only for what may have to be left out."""
    cutter = StopSequences(["\n\n"])
    assert [cutter.push(piece) for piece in ("one", "\n", "two\n", "\nthree")] == ["one", "", "\ntwo", ""]
    assert cutter.found


@pytest.mark.parametrize("whole", [True, False])
async def test_nothing_is_written_after_a_stop(whole: bool, t5: Backbone) -> None:
    """The writing ends while the text is read, before anybody closes it; the stop's own tokens are counted, no more."""
    stream = StreamedText(t5.tokenizer)
    ended = asyncio.Event()
    ids = list(t5.tokenizer.ids("a good film"))

    async def write_on() -> Prediction:
        adapter: Any = None
        stream.open(StreamStart(adapter, "device", 3, 0))
        try:
            for one in ids:
                stream.on_progress(NewTokens((one,), 0.0, 0.0))
            return await asyncio.Future()
        finally:
            ended.set()

    cut = StopSequenceStream(stream, [" film"])
    stream.start(write_on())
    if whole:
        assert await cut.whole() == "a good"
    else:
        await cut.begin()
        assert "".join([piece async for piece in cut.pieces()]) == "a good"
    await asyncio.wait_for(ended.wait(), 60)
    assert cut.finish_reason == "stop"
    assert cut.num_tokens == (3, len(ids))
