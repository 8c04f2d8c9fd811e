"""Writes the head of an answer together with the first bytes of its body."""

import asyncio
from typing import Any, Protocol


class Cycle(Protocol):
    """One request and its answer."""

    response_started: bool


class AnswerOutput:
    """The transport of a connection. Two writes take the kernel twice as long as one, so the head of an answer waits
    for the first bytes of the body. It leaves alone if they do not follow before the next turn of the event loop.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._expected: Cycle | None = None
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def expect_head(self, cycle: Cycle) -> None:
        """Says that the first write after the beginning of this answer is its head."""
        self._expected = cycle

    def write(self, data: bytes) -> None:
        """Writes `data`, or keeps it if it is a head."""
        if self._expected is not None and self._expected.response_started:
            self._flush()
            self._expected, self._head = None, data
            asyncio.get_running_loop().call_soon(self._flush)
            return
        head, self._head = self._head, b""
        self._transport.write(head + data if head else data)

    def close(self) -> None:
        """Closes the transport once everything is written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)
