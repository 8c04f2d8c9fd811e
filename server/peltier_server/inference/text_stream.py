"""One answer that is sent while it is being written."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from peltier_backbone.tokenizer import Tokenizer
from peltier_client.protocol import TextPrediction

from peltier_server.inference.detokenizer import Detokenizer
from peltier_server.inference.prediction import Prediction, StreamStart
from peltier_server.queue.ticket import Progress


class TextStream:
    """`begin`, then `pieces`, then `prediction`. Belongs to one event loop; `close` ends the writing at any time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._text = Detokenizer(tokenizer)
        self._news: asyncio.Queue[Progress | None] = asyncio.Queue()
        self._begun = asyncio.Event()
        self._work: asyncio.Task[Prediction]
        self.opening: StreamStart | None = None
        self.first: Progress | None = None
        self.num_new_tokens = 0

    @property
    def prediction(self) -> Prediction:
        """The whole answer, once the pieces have ended."""
        return self._work.result()

    def start(self, work: Coroutine[Any, Any, Prediction]) -> None:
        """Let `work` give the answer, which calls `open` and `on_progress` meanwhile."""
        self._work = asyncio.create_task(work)
        self._work.add_done_callback(self._end)

    def open(self, opening: StreamStart) -> None:
        """The adapter is ready."""
        self.opening = opening

    def on_progress(self, progress: Progress) -> None:
        """New tokens have come."""
        self.first = self.first or progress
        self._news.put_nowait(progress)
        self._begun.set()

    async def begin(self) -> StreamStart:
        """Returns once the first token is there, or the whole answer without any; raises what went wrong until then."""
        await self._begun.wait()
        if self._work.done():
            self._work.result()
        assert self.opening is not None, "work opens the stream before it gives an answer"
        return self.opening

    async def pieces(self) -> AsyncIterator[str]:
        """The text, piece by piece; raises what goes wrong after pieces that may have come."""
        while (progress := await self._news.get()) is not None:
            self.num_new_tokens += len(progress.ids)
            if piece := self._text.push(progress.ids):
                yield piece
        response = (await self._work).response
        self.num_new_tokens = response.usage.completion_tokens or 0
        found = response.predictions[0]
        assert isinstance(found, TextPrediction), "only generated texts are streamed"
        if piece := self._text.end(found.text):
            yield piece

    def close(self) -> None:
        """Whatever has not been written will not be."""
        self._work.cancel()

    def _end(self, work: asyncio.Task[Prediction]) -> None:
        if not work.cancelled():
            work.exception()  # whoever asks for the answer raises it; if nobody does, it is no news
        self._news.put_nowait(None)
        self._begun.set()
