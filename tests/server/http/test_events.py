"""Server-sent events over one connection."""

from collections.abc import AsyncIterator

import pytest
from peltier_client.errors import InferenceFailed, PeltierError
from peltier_client.protocol.predict import TextPiece
from peltier_server.http.events import event, until_error


def say(error: PeltierError) -> bytes:
    return event(error.body(), "error")


async def failing(error: Exception) -> AsyncIterator[bytes]:
    yield b"first"
    raise error


def test_an_event_is_one_line_of_json() -> None:
    """For any text; a line break would end the event."""
    text = "a\nb\r\n\u2028\u2029\x85"
    sent = event(TextPiece(index=0, text=text))
    line, *rest = sent.split(b"\n")
    assert rest == [b"", b""]
    assert TextPiece.model_validate_json(line.removeprefix(b"data: ")).text == text


async def test_an_error_follows_what_was_said() -> None:
    first, last = [one async for one in until_error(failing(InferenceFailed("no")), say)]
    assert first == b"first"
    assert last == b'event: error\ndata: {"error":{"code":"inference_failed","message":"no","details":[]}}\n\n'


async def test_what_nobody_expected_tells_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    *_, last = [one async for one in until_error(failing(ValueError("/secret/path")), say)]
    assert b"internal_error" in last
    assert b"secret" not in last
    assert "/secret/path" in caplog.text
