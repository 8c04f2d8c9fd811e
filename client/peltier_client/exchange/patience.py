"""How long to wait for a server that does not answer."""

import time
from typing import Protocol, TypeVar

from peltier_client.errors import ConnectionFailed, PeltierError, QuotaExceeded, Unavailable

PATIENCE_SECONDS = 180.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0
# What proxies answer for a server that is away.
_GATEWAY_STATUSES = frozenset({502, 504})


class LongOperation(Protocol):
    """A training or a batch."""

    @property
    def has_ended(self) -> bool: ...


E = TypeVar("E", bound=LongOperation)


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
