"""Errors of training, and messages about the rows that cause them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peltier_adapters.errors import and_more

_MAX_SHOWN_LEN = 100
_MAX_NAMED_ROWS = 20


class TrainingError(Exception):
    """Invalid data or settings, or a failed run; the message is one sentence for the user."""

    is_user_error = True


class InvalidRowsError(TrainingError):
    """Rows that cannot be used, by name."""


class NotFiniteError(TrainingError):
    """The outputs of an adapter are not finite numbers."""


def shown(value: Any) -> str:
    """A value for a message, truncated if it is long."""
    if isinstance(value, str):
        return repr(value if len(value) <= _MAX_SHOWN_LEN else f"{value[:_MAX_SHOWN_LEN]}…")
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_LEN else f"{text[:_MAX_SHOWN_LEN]}…"


@dataclass(frozen=True)
class BadRow:
    """The place of an invalid row; `reason` is a clause that follows the place in messages."""

    path: Path
    line: int
    reason: str


def describe(bad: Sequence[BadRow]) -> list[str]:
    """Messages about the first rows, one for each file and reason, and the number of further rows."""
    groups: dict[tuple[Path, str], list[str]] = {}
    for row in bad[:_MAX_NAMED_ROWS]:
        groups.setdefault((row.path, row.reason), []).append(str(row.line))
    named = [f"{path}:{', '.join(lines)}{reason}" for (path, reason), lines in groups.items()]
    more = len(bad) - _MAX_NAMED_ROWS
    return [*named, *([and_more(more)] if more > 0 else [])]


def refuse(bad: Sequence[BadRow]) -> None:
    """Raise an `InvalidRowsError` that names the `bad` rows, if there are any."""
    if bad:
        count = f"{len(bad)} rows cannot be used: " if len(bad) > 1 else ""
        raise InvalidRowsError(f"{count}{'; '.join(describe(bad))}")
