"""The head of an answer leaves with its body."""

import asyncio
from types import SimpleNamespace

from peltier_server.http.answer_output import AnswerOutput


class Transport:
    """Keeps what is written to it."""

    def __init__(self) -> None:
        self.written = list[bytes]()
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def open_output() -> tuple[Transport, AnswerOutput, SimpleNamespace]:
    transport, cycle = Transport(), SimpleNamespace(response_started=False)
    output = AnswerOutput(transport)
    output.expect_head(cycle)
    return transport, output, cycle


async def test_a_head_and_its_body_are_one_write() -> None:
    """Later pieces, and what comes before the head, are written as they come; a second answer is like the first."""
    transport, output, cycle = open_output()
    output.write(b"continue")
    cycle.response_started = True
    for data in (b"head", b"body", b"more"):
        output.write(data)
    output.expect_head(cycle)
    for data in (b"second head", b"body"):
        output.write(data)
    await asyncio.sleep(0)
    assert transport.written == [b"continue", b"headbody", b"more", b"second headbody"]


async def test_a_head_does_not_wait_for_a_late_body() -> None:
    """It leaves in the next turn of the loop."""
    transport, output, cycle = open_output()
    cycle.response_started = True
    output.write(b"head")
    assert transport.written == []
    await asyncio.sleep(0)
    output.write(b"body")
    assert transport.written == [b"head", b"body"]


async def test_a_head_without_a_body_leaves_before_the_end() -> None:
    """Also where the connection is closed, or another answer begins, in the same turn."""
    transport, output, cycle = open_output()
    cycle.response_started = True
    output.write(b"first")
    output.expect_head(cycle)
    output.write(b"second")
    output.close()
    await asyncio.sleep(0)
    assert (transport.written, transport.closed) == ([b"first", b"second"], True)


async def test_nothing_is_written_to_a_connection_that_is_gone() -> None:
    """The caller closed it in the meantime."""
    transport, output, cycle = open_output()
    cycle.response_started = True
    output.write(b"head")
    transport.closed = True
    await asyncio.sleep(0)
    assert transport.written == []
