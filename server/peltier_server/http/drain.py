"""The last phase of a server: it answers the requests that have arrived and refuses new ones."""

import logging
import time
from dataclasses import dataclass

from peltier_server.http.lifecycle import Lifecycle

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Drain:
    """One drain, and its records in the log; `deadline` is in seconds of `time.monotonic`."""

    lifecycle: Lifecycle
    began_at: float
    deadline: float
    num_open: int

    @classmethod
    def begin(cls, lifecycle: Lifecycle, seconds: float) -> "Drain":
        """Begins a drain: the server refuses new requests, and has `seconds` to answer the requests that have
        arrived.
        """
        lifecycle.drain()
        now = time.monotonic()
        logger.info("drain begun", extra={"fields": {"open": lifecycle.num_open, "seconds": seconds}})
        return cls(lifecycle, now, now + seconds, lifecycle.num_open)

    @property
    def seconds_left(self) -> float:
        """The seconds until the deadline; negative after it."""
        return self.deadline - time.monotonic()

    def log_end(self) -> None:
        """Logs how many requests were answered, how many were cut off, and how many were refused. The last two were
        answered 503.
        """
        cut_off = self.lifecycle.num_open
        fields = {
            "answered": self.num_open - cut_off,
            "cut_off": cut_off,
            "refused": self.lifecycle.num_refused,
            "seconds": round(time.monotonic() - self.began_at, 3),
        }
        logger.log(logging.WARNING if cut_off else logging.INFO, "drain ended", extra={"fields": fields})
