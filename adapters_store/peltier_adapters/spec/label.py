"""The rule of a label's text, which artifacts, files of examples and requests share. Imports no torch."""

import re
from typing import Annotated

from pydantic import Field

MAX_LABEL_CHARS = 256
# Control characters, and characters that change the direction of the following text: people could not see the names.
INVISIBLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")

Label = Annotated[str, Field(min_length=1, max_length=MAX_LABEL_CHARS)]


def label_problem(label: str) -> str | None:
    """The clause that follows a label which no artifact may have; None for every other."""
    if not 1 <= len(label) <= MAX_LABEL_CHARS:
        return f"has {len(label):,} characters; a label has 1 to {MAX_LABEL_CHARS}"
    if (found := INVISIBLE.search(label)) is not None:
        return f"contains the invisible character U+{ord(found[0]):04X}; every character of a label must be visible"
    return surrogate_problem(label)


def surrogate_problem(text: str) -> str | None:
    """The clause that follows a text which cannot be written in UTF-8; None for every other."""
    if (found := _SURROGATE.search(text)) is None:
        return None
    return f"contains U+{ord(found[0]):04X}, half of a character; it must be Unicode text"
