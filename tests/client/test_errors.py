"""Errors: their codes and classes, and what a server sends for one, which the client reads as the same one."""

import copy
import pickle
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from peltier_client import errors
from peltier_client.errors import PeltierError, error_classes
from peltier_client.exchange.request import error_from_body, retry_after_seconds

LEAVES = list(error_classes())
WIRE = [cls for cls in LEAVES if cls.status]


def test_every_code_belongs_to_one_class() -> None:
    """Two classes never share a code, so the code alone names the exception."""
    assert sorted(errors.BY_CODE) == sorted({cls.code for cls in LEAVES})
    assert len(errors.BY_CODE) == len(LEAVES)


def test_the_drawing_names_every_class() -> None:
    """The tree at the top of the module lists each class with its code."""
    assert errors.__doc__
    for cls in LEAVES:
        assert f" {cls.__name__} " in errors.__doc__, cls
    for cls in WIRE:
        assert f"{cls.status} {cls.code}" in errors.__doc__


@pytest.mark.parametrize("cls", [PeltierError, *LEAVES])
def test_errors_cross_processes(cls: type[PeltierError]) -> None:
    """Pickling and copying keep the sentence, the details and the seconds to wait."""
    error = cls("why", ["detail"], retry_after=2.5)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own bytes
        assert type(twin) is cls
        assert (str(twin), twin.details, twin.retry_after) == ("why", ["detail"], 2.5)


@pytest.mark.parametrize("cls", [cls for cls in error_classes() if cls.status])
def test_an_error_comes_back_as_itself(cls: type[PeltierError]) -> None:
    """What a server sends for an exception is read by the client as the same exception."""
    sent = cls("task 'x' broke the rule", ["first", "second"])
    body = sent.body().model_dump_json().encode()
    received = error_from_body(sent.status, body, {"retry-after": "3"})
    assert type(received) is cls
    assert (str(received), received.details, received.retry_after) == (sent.message, sent.details, 3.0)


@pytest.mark.parametrize(
    ("status", "parent"), [(404, errors.NotFound), (418, errors.BadRequest), (503, errors.Unavailable)]
)
def test_an_unknown_code_is_kept_under_the_class_of_its_status(status: int, parent: type[PeltierError]) -> None:
    """A newer server's code reaches the caller, as the nearest class this client knows."""
    error = error_from_body(status, b'{"error": {"code": "brand_new", "message": "why"}}', {})
    assert type(error) is parent
    assert (error.code, error.status, str(error)) == ("brand_new", status, "why")


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"detail": "Not Found"}', b"[]", b"\xff\xfe", b'{"error": "x"}'])
def test_a_foreign_body_is_said_to_be_foreign(body: bytes) -> None:
    """An error page that is not Peltier's never passes for a missing adapter."""
    error = error_from_body(404, body, {})
    assert type(error) is errors.UnexpectedAnswer
    assert "404" in str(error)


def test_a_gateway_may_say_that_the_service_is_away() -> None:
    """A proxy's bare 503 is as retryable as the server's own."""
    error = error_from_body(503, b"<html>", {"retry-after": "7"})
    assert type(error) is errors.Unavailable
    assert error.retry_after == 7.0


@pytest.mark.parametrize(
    ("value", "seconds"), [("0", 0.0), (" 12 ", 12.0), (None, None), ("soon", None), ("-1", None), ("", None)]
)
def test_retry_after_in_seconds(value: str | None, seconds: float | None) -> None:
    """Whole seconds are read, nonsense is as good as no header."""
    assert retry_after_seconds(value) == seconds


def test_retry_after_as_a_date() -> None:
    """The date form counts from now and never asks for a negative wait."""
    soon = datetime.now(UTC) + timedelta(seconds=600)
    assert 500 < (retry_after_seconds(format_datetime(soon, usegmt=True)) or 0) <= 600
    assert retry_after_seconds("Sat, 01 Jan 2000 00:00:00 GMT") == 0.0
    assert retry_after_seconds("Sat, 01 Jan 2000 00:00:00 -0000") == 0.0
