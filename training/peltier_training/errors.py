"""What training can refuse."""

from typing import Any

_MAX_SHOWN_LEN = 100


class TrainingError(Exception):
    """Data, settings or a run that cannot work; the message is one sentence for the user."""

    is_user_error = True


class NotFiniteError(TrainingError):
    """An adapter whose outputs are not finite numbers."""


def shown(value: Any) -> str:
    """A value for a sentence: long ones are cut."""
    if isinstance(value, str):
        return repr(value if len(value) <= _MAX_SHOWN_LEN else f"{value[:_MAX_SHOWN_LEN]}…")
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_LEN else f"{text[:_MAX_SHOWN_LEN]}…"
