"""The rule for texts of which nothing can be seen, which requests and files of examples share. Imports no torch."""

import re
import unicodedata

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
