"""The rules for texts: of a label, and for texts of which nothing can be seen, which artifacts, requests and files of
examples share. Imports no torch."""

import re
import unicodedata
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


# A character of ASCII that is printed, or a letter or digit of any script but the blank letters of Hangul.
_PLAIN = re.compile(r"[!-~]|[^\W\u115f\u1160\u3164\uffa0]")
_BLANK_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
# Those of other categories that no font shows: Unicode's Default_Ignorable_Code_Point, and the blank Braille pattern.
_BLANK = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)


def is_plain(text: str) -> bool:
    """Whether a text has a printed ASCII character, a letter or a digit, which every tokenizer reads."""
    return _PLAIN.search(text) is not None


def is_visible(text: str) -> bool:
    """Whether a text has a character that can be seen. Controls, format characters such as U+200B, U+00AD and U+FEFF,
    separators, and blank letters cannot."""
    return is_plain(text) or not all(map(_is_blank, set(text)))


def _is_blank(char: str) -> bool:
    return unicodedata.category(char) in _BLANK_CATEGORIES or _BLANK.match(char) is not None
