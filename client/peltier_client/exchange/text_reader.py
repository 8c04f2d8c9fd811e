"""Reads the events of a streamed text, independent of the transport."""

from httpx2 import ServerSentEvent
from pydantic import TypeAdapter, ValidationError

from peltier_client.errors import ConnectionFailed, ErrorBody, UnexpectedAnswer
from peltier_client.exchange.error_reader import error_from_detail
from peltier_client.exchange.results import PredictionBody, Predictions
from peltier_client.protocol import TextPiece

_DONE = "[DONE]"
_EVENT: TypeAdapter[TextPiece | PredictionBody] = TypeAdapter(TextPiece | PredictionBody)


class TextReader:
    """Takes events one by one. `predictions` is the whole answer once received; `done` is set by the last event."""

    def __init__(self) -> None:
        self.predictions: Predictions | None = None
        self.done = False

    def read(self, event: ServerSentEvent) -> str:
        """The piece of text in `event`, which may be empty. Raises the error that an event carries."""
        try:
            if event.event == "error":
                raise error_from_detail(ErrorBody.model_validate_json(event.data).error)
            if event.data == _DONE:
                self.done = True
                return ""
            found = _EVENT.validate_json(event.data)
        except ValidationError as error:
            raise UnexpectedAnswer(
                f"the server sent an event that does not belong to a text: {event.data[:80]!r}"
            ) from error
        if isinstance(found, TextPiece):
            return found.text
        self.predictions = Predictions(found)
        return ""

    def end(self) -> Predictions:
        """The whole answer. Raises `ConnectionFailed` if the events ended before it."""
        if not self.done or self.predictions is None:
            raise ConnectionFailed("the connection broke before the text was complete")
        return self.predictions
