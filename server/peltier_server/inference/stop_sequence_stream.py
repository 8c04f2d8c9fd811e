"""A streamed text that ends at its first stop sequence."""

from collections.abc import AsyncIterator, Sequence

from peltier_client.protocol import FinishReason, TextPrediction

from peltier_server.inference.prediction import StreamStart
from peltier_server.inference.stop_sequences import StopSequences
from peltier_server.inference.text_stream import StreamedText


class StopSequenceStream:
    """The text of `stream` up to the first of `stops`. When a stop is found, generation ends."""

    def __init__(self, stream: StreamedText, stops: Sequence[str]) -> None:
        self._stream = stream
        self._stops = StopSequences(stops)

    async def begin(self) -> StreamStart:
        """Waits for the first token, like `TextStream.begin`."""
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
