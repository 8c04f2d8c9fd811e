"""How the events of a streamed answer are read, whatever carries them."""

from httpx2 import ServerSentEvent
from pydantic import TypeAdapter, ValidationError

from peltier_client.errors import ConnectionFailed, ErrorBody, UnexpectedAnswer
from peltier_client.exchange.error_reader import error_from_detail
from peltier_client.exchange.results import PredictionBody, Predictions
from peltier_client.protocol import TextPiece

_DONE = "[DONE]"
_EVENT: TypeAdapter[TextPiece | PredictionBody] = TypeAdapter(TextPiece | PredictionBody)


class TextReader:
    """Takes events one by one; `predictions` is the whole answer once it has come, `done` the server's last word."""

    def __init__(self) -> None:
        self.predictions: Predictions | None = None
        self.done = False

    def read(self, event: ServerSentEvent) -> str:
        """What `event` adds to the text, often nothing; raises the error that the server sent in its place."""
        try:
            if event.event == "error":
                raise error_from_detail(ErrorBody.model_validate_json(event.data).error)
            if event.data == _DONE:
                self.done = True
                return ""
            found = _EVENT.validate_json(event.data)
        except ValidationError as error:
            raise UnexpectedAnswer(
                f"the server sent an event that is no part of a text: {event.data[:80]!r}"
            ) from error
        if isinstance(found, TextPiece):
            return found.text
        self.predictions = Predictions(found)
        return ""

    def end(self) -> Predictions:
        """The whole answer; raises where the events ended before it came."""
        if not self.done or self.predictions is None:
            raise ConnectionFailed("the connection broke before the text was complete")
        return self.predictions
