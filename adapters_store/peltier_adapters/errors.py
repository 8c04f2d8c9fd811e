"""Errors of adapters, artifacts and inputs."""

from collections.abc import Sequence

_MAX_REASONS = 100
_MAX_REASON_CHARS = 500


class AdapterError(Exception):
    """The user must change an adapter or an option; the message is one sentence."""

    is_user_error = True


class InputError(AdapterError):
    """An input that does not fit its task."""


class ArtifactError(AdapterError):
    """An artifact is refused. `reasons` has at most a hundred reasons, each one line of printable characters."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = [_readable(reason) for reason in reasons[:_MAX_REASONS]]
        if len(reasons) > _MAX_REASONS:
            self.reasons.append(and_more(len(reasons) - _MAX_REASONS, "reason"))
        super().__init__(first_of(self.reasons[0], len(reasons), "reason"))


def first_of(reason: str, count: int, noun: str = "") -> str:
    """The first of `count` reasons, with the number of the others; `noun` is what they are, in the singular."""
    return f"{reason} ({and_more(count - 1, noun)})" if count > 1 else reason


def and_more(count: int, noun: str = "") -> str:
    """The end of a shortened list: "and 2 more", or "and 1 more reason"."""
    plural = "s" if noun and count > 1 else ""
    return f"and {count} more {noun}{plural}".rstrip()


def _readable(reason: str) -> str:
    shown = reason[: _MAX_REASON_CHARS + 1]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)
    return shown if len(shown) <= _MAX_REASON_CHARS else f"{shown[:_MAX_REASON_CHARS]}…"
