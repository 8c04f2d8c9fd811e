"""A streamed text that ends at its first stop."""

from collections.abc import AsyncIterator, Sequence

from peltier_client.protocol import FinishReason, TextPrediction

from peltier_server.inference.prediction import StreamStart
from peltier_server.inference.stop_sequences import StopSequences
from peltier_server.inference.text_stream import TextStream


class StopSequenceStream:
    """`stream` up to the first of `stops`, after which nothing more of it is written."""

    def __init__(self, stream: TextStream, stops: Sequence[str]) -> None:
        self._stream = stream
        self._stops = StopSequences(stops)

    async def begin(self) -> StreamStart:
        """As the stream's."""
        return await self._stream.begin()

    async def pieces(self) -> AsyncIterator[str]:
        """What comes before the stop, piece by piece."""
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
        prediction = self._stream.prediction.response.predictions[0]
        assert isinstance(prediction, TextPrediction), "only generated texts are streamed"
        return prediction.finish_reason

    @property
    def num_tokens(self) -> tuple[int, int]:
        """Of the input, and those written for this text, the stop's among them."""
        assert self._stream.opening is not None, "a text that has begun has been opened"
        return self._stream.opening.num_tokens, self._stream.num_new_tokens

    def close(self) -> None:
        """Whatever has not been written will not be."""
        self._stream.close()
