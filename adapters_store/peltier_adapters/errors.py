"""What the adapter store can refuse."""

from collections.abc import Sequence

_MAX_REASONS = 100
_MAX_REASON_CHARS = 500


class AdapterError(Exception):
    """Anything about an adapter that the user must change; the message is one sentence."""

    is_user_error = True


class InputError(AdapterError):
    """An input that does not fit its task."""


class ArtifactError(AdapterError):
    """An artifact refused, with every reason at once (a hostile file may give a million: the first hundred).

    A reason is one line of printable characters, whatever the file's own words in it are."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = [_readable(reason) for reason in reasons[:_MAX_REASONS]]
        if len(reasons) > _MAX_REASONS:
            self.reasons.append(f"and {len(reasons) - _MAX_REASONS} more reasons")
        super().__init__(first_of(self.reasons[0], len(reasons), "reasons"))


def first_of(reason: str, count: int, things: str = "") -> str:
    """The first of `count` reasons, and how many more there are."""
    more = f"{count - 1} more {things}".rstrip()
    return f"{reason} (and {more})" if count > 1 else reason


def _readable(reason: str) -> str:
    shown = reason[: _MAX_REASON_CHARS + 1]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)
    return shown if len(shown) <= _MAX_REASON_CHARS else f"{shown[:_MAX_REASON_CHARS]}…"
