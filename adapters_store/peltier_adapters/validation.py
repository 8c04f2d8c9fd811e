"""Errors of pydantic as sentences: the field, its value and the rule."""

import reprlib

from pydantic import ValidationError
from pydantic_core import ErrorDetails

# A key may be as long as the file.
_MAX_KEY_CHARS = 64
# Errors without a value, and errors whose message already contains it.
_COMPLETE = ("value_error", "missing", "json_invalid")


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
