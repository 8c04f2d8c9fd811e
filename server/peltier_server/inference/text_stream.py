"""A text that is sent while the model generates it, and one that ends at a stop sequence."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from peltier_backbone.text.tokenizer import Tokenizer
from peltier_client.protocol.predict import FinishReason, TextPrediction

from peltier_server.inference.prediction import Prediction, StreamStart

if TYPE_CHECKING:
    from peltier_server.queue.ticket import NewTokens

# `decode` writes this character for bytes that are not, or not yet, a valid character.
_NOT_YET = "\N{REPLACEMENT CHARACTER}"
# A character of four bytes that is in no vocabulary, so a tokenizer with byte fallback encodes it as bytes.
_RARE = "\U0010fffd"


class Detokenizer:
    """Takes tokens and returns pieces of text. Joined, the pieces are the text of all tokens. A piece never changes.

    It holds back incomplete characters, and single-byte tokens until a token with other text follows. The reason is
    that a tokenizer with byte fallback replaces a whole run of bytes if the run does not end with a complete character.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._sent = ""

    def push(self, ids: Sequence[int]) -> str:
        """Adds tokens and returns the text that has become certain, which may be empty."""
        self._ids += ids
        settled = len(self._ids)
        while settled and self._is_open(self._ids[settled - 1]):
            settled -= 1
        return self._send(self._tokenizer.decode(self._ids[:settled]).rstrip(_NOT_YET))

    def end(self, text: str) -> str:
        """The rest of `text`, the text of all tokens, that has not been returned yet."""
        return self._send(text)

    def _send(self, text: str) -> str:
        if not text.startswith(self._sent):
            return ""
        piece = text[len(self._sent) :]
        self._sent = text
        return piece

    def _is_open(self, token: int) -> bool:
        """Whether a following byte could change the text of `token`: it is a byte, or a special token without text."""
        lead = self._lead_byte
        return lead is not None and not self._tokenizer.decode([token, lead]).strip(_NOT_YET)

    @cached_property
    def _lead_byte(self) -> int | None:
        """The token of a byte that begins a character; None if the tokenizer has no byte tokens."""
        return next((one for one in self._tokenizer.ids(_RARE) if self._tokenizer.decode([one]) == _NOT_YET), None)


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

    def on_progress(self, progress: "NewTokens") -> None:
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


class StopSequences:
    """Takes pieces of a text and returns the text before the first of `stops`, as soon as it is certain.

    It holds back the end of the text while that end may be the beginning of a stop.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.found = False

    def push(self, piece: str) -> str:
        """Adds a piece and returns the text that has become certain. Do not call it after a stop is `found`."""
        text = self._held + piece
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self._held, self.found = "", True
            return text[: min(places)]
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        """The text that was held back, for a text that has ended without a stop."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` are the beginning of `stop`."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)


class StopSequenceStream:
    """The text of `stream` up to the first of `stops`. When a stop is found, generation ends."""

    def __init__(self, stream: StreamedText, stops: Sequence[str]) -> None:
        self._stream = stream
        self._stops = StopSequences(stops)

    async def begin(self) -> StreamStart:
        """Waits for the first token, like `StreamedText.begin`."""
        return await self._stream.begin()

    async def pieces(self) -> AsyncIterator[str]:
        """The text before the stop, in pieces."""
        async for piece in self._stream.pieces():
            if certain := self._stops.push(piece):
                yield certain
            if self._stops.found:
                self.close()
                return
        if rest := self._stops.end():
            yield rest

    async def whole(self) -> str:
        """All pieces as one text."""
        await self.begin()
        return "".join([piece async for piece in self.pieces()])

    @property
    def finish_reason(self) -> FinishReason:
        """Why the text has ended."""
        if self._stops.found:
            return "stop"
        prediction = self._stream.prediction.predictions[0]
        assert isinstance(prediction, TextPrediction), "only generated texts are streamed"
        return prediction.finish_reason

    @property
    def num_tokens(self) -> tuple[int, int]:
        """The numbers of tokens of the input and of the generated text with its stop."""
        assert self._stream.opening is not None, "a text that has begun has been opened"
        return self._stream.opening.num_tokens, self._stream.num_new_tokens

    def close(self) -> None:
        """Ends generation."""
        self._stream.close()
