"""The line and headers of the request that a connection reads: bounded in bytes and in time."""

import asyncio
from asyncio import TimerHandle
from collections.abc import Callable

# The parser has no limit of its own and would keep a larger head whole.
MAX_HEAD_BYTES = 64 * 1024


class RequestHead:
    """Calls `give_up` when a head takes longer than `seconds`. Its clock stands still while the server does not read.

    The parser reports what is complete. What it keeps of an unfinished header counts as the bytes of all chunks in
    which it reports nothing: so no byte of an earlier request on the connection counts, and none counts twice.
    """

    def __init__(self, seconds: float, give_up: Callable[[], None]) -> None:
        self._seconds = seconds
        self._give_up = give_up
        self._clock: TimerHandle | None = None
        self._is_open = self._is_paused = False
        self._num_reported = self._num_unreported = 0

    @property
    def is_open(self) -> bool:
        """A head is awaited, or has begun and not ended."""
        return self._is_open

    @property
    def is_too_large(self) -> bool:
        """More has come than a head, or the trailer of a body, may have."""
        return self._num_reported + self._num_unreported > MAX_HEAD_BYTES

    def begin(self) -> None:
        """A head is awaited from now on, or begins; the clock of one that is awaited goes on."""
        self._num_reported = self._num_unreported = 0
        self._is_open = True
        self._start_clock()

    def receive(self, num_bytes: int) -> None:
        """So many bytes are given to the parser, which calls `report` for what it finds in them."""
        self._num_unreported += num_bytes

    def report(self, num_bytes: int) -> None:
        """The parser has found so many bytes of the line, of a header or of a trailer, or something else."""
        self._num_reported += num_bytes
        self._num_unreported = 0

    def end(self) -> None:
        """The head is complete, or the connection has gone."""
        self._num_reported = self._num_unreported = 0
        self._is_open = False
        self._stop_clock()

    def pause(self) -> None:
        """The server stops reading."""
        self._is_paused = True
        self._stop_clock()

    def resume(self) -> None:
        """The server reads on; a head that is not complete has all of its time again."""
        self._is_paused = False
        self._start_clock()

    def _start_clock(self) -> None:
        if self._clock is None and self._is_open and not self._is_paused:
            self._clock = asyncio.get_running_loop().call_later(self._seconds, self._give_up)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
