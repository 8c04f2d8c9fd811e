"""Errors of adapters, artifacts and inputs, and the sentences of their messages. Imports no torch."""

import reprlib
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_MAX_REASONS = 100
_MAX_REASON_CHARS = 500
# A key may be as long as the file.
_MAX_KEY_CHARS = 64
# Errors without a value, and errors whose message already contains it.
_COMPLETE = ("value_error", "missing", "json_invalid")


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


def nearest(name: str, known: Iterable[str]) -> str:
    """A clause for the message that refuses `name`; empty if no `known` name is similar."""
    found = get_close_matches(name, list(known), n=1)
    return f", the nearest is {found[0]!r}" if found else ""


def sentences(error: ValidationError) -> list[str]:
    """One sentence per error, beginning with the dotted path of the field."""
    return [_sentence(item) for item in error.errors(include_url=False)]


def _sentence(item: ErrorDetails) -> str:
    where = ".".join(str(part)[:_MAX_KEY_CHARS] for part in item["loc"]) or "as a whole"
    rule = item["msg"].removeprefix("Value error, ")
    rule = rule[0].lower() + rule[1:]
    if item["type"] in _COMPLETE:
        return f"{where}: {rule}"
    return f"{where} is {reprlib.repr(item['input'])}: {rule}"
