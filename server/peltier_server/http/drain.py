"""The end of a server's life, when it answers what has arrived and takes nothing new."""

import logging
import time
from dataclasses import dataclass

from peltier_server.http.lifecycle import Lifecycle

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Drain:
    """How it goes, in the log; `deadline` is in seconds of `time.monotonic`."""

    lifecycle: Lifecycle
    began_at: float
    deadline: float
    num_open: int

    @classmethod
    def begin(cls, lifecycle: Lifecycle, seconds: float) -> "Drain":
        """From now on nothing new is taken; what has arrived is answered within `seconds`."""
        lifecycle.drain()
        now = time.monotonic()
        logger.info("drain begun", extra={"fields": {"open": lifecycle.num_open, "seconds": seconds}})
        return cls(lifecycle, now, now + seconds, lifecycle.num_open)

    @property
    def seconds_left(self) -> float:
        """Below 0 once its time is up."""
        return self.deadline - time.monotonic()

    def log_end(self) -> None:
        """Says how many requests were answered, and how many read 503: those cut off, and those that came too late."""
        cut_off = self.lifecycle.num_open
        fields = {
            "answered": self.num_open - cut_off,
            "cut_off": cut_off,
            "refused": self.lifecycle.num_refused,
            "seconds": round(time.monotonic() - self.began_at, 3),
        }
        logger.log(logging.WARNING if cut_off else logging.INFO, "drain ended", extra={"fields": fields})
