"""A streamed text that ends at its first stop sequence, without a server."""

import asyncio
from typing import Any

import pytest
from peltier_backbone.backbone import Backbone
from peltier_server.inference.prediction import Prediction, StreamStart
from peltier_server.inference.stop_sequence_stream import StopSequenceStream
from peltier_server.inference.text_stream import StreamedText
from peltier_server.queue.ticket import NewTokens


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
    await asyncio.wait_for(ended.wait(), 10)
    assert cut.finish_reason == "stop"
    assert cut.num_tokens == (3, len(ids))
