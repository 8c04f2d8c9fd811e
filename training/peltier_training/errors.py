"""Errors of training."""

from typing import Any

_MAX_SHOWN_LEN = 100


class TrainingError(Exception):
    """Invalid data or settings, or a failed run; the message is one sentence for the user."""

    is_user_error = True


class NotFiniteError(TrainingError):
    """The outputs of an adapter are not finite numbers."""


def shown(value: Any) -> str:
    """A value for a message, truncated if it is long."""
    if isinstance(value, str):
        return repr(value if len(value) <= _MAX_SHOWN_LEN else f"{value[:_MAX_SHOWN_LEN]}…")
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_LEN else f"{text[:_MAX_SHOWN_LEN]}…"
