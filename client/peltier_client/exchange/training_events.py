"""Following a training: the reader of its events, and how long to wait for a server that does not answer."""

import time

from httpx2 import ServerSentEvent
from pydantic import ValidationError

from peltier_client.errors import (
    ConnectionFailed,
    ErrorBody,
    PeltierError,
    QuotaExceeded,
    Unavailable,
    UnexpectedAnswer,
)
from peltier_client.exchange.request import error_from_detail
from peltier_client.protocol import ENDED, TrainingEvent

PATIENCE_SECONDS = 180.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0
# What proxies answer for a server that is away.
_GATEWAY_STATUSES = frozenset({502, 504})


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


class Patience:
    """Allows a server to be away, such as during its restart, for `PATIENCE_SECONDS` after its last sign of life."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """The server has answered."""
        self._since, self._next = time.monotonic(), _FIRST_PAUSE_SECONDS

    def pause(self, error: PeltierError | None = None) -> float:
        """The seconds until the next try. Raises `error` if another try would not help, or after too long."""
        if error is not None and not self._is_worth_waiting(error):
            raise error
        pause, self._next = self._next, min(2 * self._next, _LONGEST_PAUSE_SECONDS)
        return pause

    def _is_worth_waiting(self, error: PeltierError) -> bool:
        is_passing = isinstance(error, ConnectionFailed | Unavailable | QuotaExceeded)
        is_passing |= error.status in _GATEWAY_STATUSES
        return is_passing and time.monotonic() - self._since < PATIENCE_SECONDS
