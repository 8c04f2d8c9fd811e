"""One answer that is sent while the model generates it."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from peltier_backbone.text.tokenizer import Tokenizer
from peltier_client.protocol import TextPrediction

from peltier_server.inference.detokenizer import Detokenizer
from peltier_server.inference.prediction import Prediction, StreamStart
from peltier_server.queue.ticket import NewTokens


class StreamedText:
    """Call `begin`, then `pieces`, then `prediction`. `close` may end generation early. Belongs to one event loop."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._text = Detokenizer(tokenizer)
        self._news: asyncio.Queue[NewTokens | None] = asyncio.Queue()
        self._begun = asyncio.Event()
        self._work: asyncio.Task[Prediction]
        self.opening: StreamStart | None = None
        self.first: NewTokens | None = None
        self.num_new_tokens = 0

    @property
    def prediction(self) -> Prediction:
        """The whole answer, after `pieces` has ended."""
        return self._work.result()

    def start(self, work: Coroutine[Any, Any, Prediction]) -> None:
        """Starts `work`, which returns the answer and calls `open` and `on_progress` before that."""
        self._work = asyncio.create_task(work)
        self._work.add_done_callback(self._end)

    def open(self, opening: StreamStart) -> None:
        """`work` calls it when the adapter is loaded."""
        self.opening = opening

    def on_progress(self, progress: NewTokens) -> None:
        """`work` calls it for new tokens."""
        self.first = self.first or progress
        self._news.put_nowait(progress)
        self._begun.set()

    async def begin(self) -> StreamStart:
        """Waits for the first token, or for the end of an answer without tokens. Raises an error that occurs before."""
        await self._begun.wait()
        if self._work.done():
            self._work.result()
        assert self.opening is not None, "work opens the stream before it gives an answer"
        return self.opening

    async def pieces(self) -> AsyncIterator[str]:
        """The text in pieces. May raise an error after some pieces."""
        while (progress := await self._news.get()) is not None:
            self.num_new_tokens += len(progress.ids)
            if piece := self._text.push(progress.ids):
                yield piece
        prediction = await self._work
        self.num_new_tokens = prediction.num_new_tokens or 0
        found = prediction.predictions[0]
        assert isinstance(found, TextPrediction), "only generated texts are streamed"
        if piece := self._text.end(found.text):
            yield piece

    def close(self) -> None:
        """Ends generation."""
        self._work.cancel()

    def _end(self, work: asyncio.Task[Prediction]) -> None:
        if not work.cancelled():
            work.exception()  # marks the error as retrieved, so asyncio logs no warning if no caller reads the answer
        self._news.put_nowait(None)
        self._begun.set()
