"""The reader of a training's events."""

from httpx2 import ServerSentEvent
from pydantic import ValidationError

from peltier_client.errors import ErrorBody, UnexpectedAnswer
from peltier_client.exchange.request import error_from_detail
from peltier_client.protocol.trainings import ENDED, TrainingEvent


class EventReader:
    """Takes events one by one. `is_complete` tells whether no event follows, because the training has ended."""

    def __init__(self, *, is_complete: bool = False) -> None:
        self.is_complete = is_complete

    def read(self, sent: ServerSentEvent) -> TrainingEvent | None:
        """The event that is sent; None for one without content. Raises the error that an event carries."""
        if not sent.data:
            return None
        try:
            if sent.event == "error":
                raise error_from_detail(ErrorBody.model_validate_json(sent.data).error)
            event = TrainingEvent.model_validate_json(sent.data)
        except ValidationError as error:
            raise UnexpectedAnswer(
                f"the server sent an event that does not belong to a training: {sent.data[:80]!r}"
            ) from error
        self.is_complete = event.kind == "state" and event.data.get("state") in ENDED
        return event
