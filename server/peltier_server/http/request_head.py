"""Bounds the line and headers of the request that a connection reads, in bytes and in time."""

import asyncio
from asyncio import TimerHandle
from collections.abc import Callable

# The parser has no limit of its own and would keep a larger head in memory.
MAX_HEAD_BYTES = 64 * 1024


class RequestHead:
    """Calls `give_up` when a head takes longer than `seconds`. Its timer stops while the server does not read. The
    connection calls `keep_time` whenever it has parsed what has arrived, so a head in one piece needs no timer.

    The parser reports each complete part. The bytes of the chunks since its last report count as an unfinished header.
    So no byte of an earlier request on the connection counts, and no byte counts twice.
    """

    def __init__(self, seconds: float, give_up: Callable[[], None]) -> None:
        self._seconds = seconds
        self._give_up = give_up
        self._clock: TimerHandle | None = None
        self._is_open = self._is_paused = False
        self._num_reported = self._num_unreported = 0

    @property
    def is_open(self) -> bool:
        """Whether a head is expected, or has begun and not ended."""
        return self._is_open

    @property
    def is_too_large(self) -> bool:
        """Whether a head, or the trailer of a body, has more than `MAX_HEAD_BYTES`."""
        return self._num_reported + self._num_unreported > MAX_HEAD_BYTES

    def begin(self) -> None:
        """Notes that a head is expected, or begins. A timer that already runs continues."""
        self._num_reported = self._num_unreported = 0
        self._is_open = True

    def receive(self, num_bytes: int) -> None:
        """Counts `num_bytes` that the connection gives to the parser. The parser calls `report` for the parts that
        it finds.
        """
        self._num_unreported += num_bytes

    def report(self, num_bytes: int) -> None:
        """Counts `num_bytes` that the parser has found of the line, a header or a trailer; 0 for any other part."""
        self._num_reported += num_bytes
        self._num_unreported = 0

    def end(self) -> None:
        """Notes that the head is complete, or that the connection has closed."""
        self._num_reported = self._num_unreported = 0
        self._is_open = False
        self._stop_clock()

    def pause(self) -> None:
        """Stops the timer while the server does not read."""
        self._is_paused = True
        self._stop_clock()

    def resume(self) -> None:
        """Starts the timer again when the server reads on. An incomplete head gets the full `seconds` again."""
        self._is_paused = False
        self.keep_time()

    def keep_time(self) -> None:
        """Starts the timer if it has to run and does not."""
        if self._clock is None and self._is_open and not self._is_paused:
            self._clock = asyncio.get_running_loop().call_later(self._seconds, self._give_up)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
