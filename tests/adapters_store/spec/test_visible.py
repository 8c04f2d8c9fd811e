"""The rule for texts of which nothing can be seen."""

import unicodedata

import pytest
from peltier_adapters.spec.visible import is_plain, is_visible

INVISIBLE = [
    "",
    " \t\r\n",
    "\u00a0\u3000\u2028\u2029",  # spaces and line ends
    "\u200b",  # zero width space
    "\u00ad",  # soft hyphen
    "\ufeff",  # byte order mark
    "\u200e\u200f\u202a\u2066\u2069",  # marks of direction
    "\u200c\u200d\u2060\u180e",  # joiners
    "\x00\x1b\x7f\x85",  # controls
    "\ufe0f\ufe00\U000e0100\u180b\u034f",  # variation selectors, and the grapheme joiner
    "\U000e0041\U000e007f",  # tags
    "\u3164\uffa0\u115f\u1160",  # blank letters of Hangul
    "\u2800",  # the blank Braille pattern
    " \u200b\u00ad\ufeff\u3164 " * 1000,
]


@pytest.mark.parametrize("text", INVISIBLE)
def test_nothing_of_it_can_be_seen(text: str) -> None:
    """Whatever a tokenizer makes of it."""
    assert not is_visible(text)
    assert not is_plain(text)


@pytest.mark.parametrize("text", ["a", "!", "_", "0", "ß", "漢", "ก", "א", "٣", "½", "\ua9e6", "ㄱ"])
def test_letters_digits_and_ascii_are_plain(text: str) -> None:
    """Of every script, and also between invisible characters."""
    assert is_plain(f"\u200b{text}\ufeff")
    assert is_visible(text)


@pytest.mark.parametrize("text", ["€", "👍", "\u0301", "\u093e", "—", "\ue000", "\U0010fffd", "\u0378", "\ufffd"])
def test_marks_and_symbols_are_visible(text: str) -> None:
    """And characters of private use, and those that a later Unicode may define."""
    assert is_visible(f"\u200b{text}")
    assert not is_plain(text)


def test_every_plain_character_is_visible() -> None:
    """Of all of Unicode; no letter or digit has a category of blank characters."""
    blank = {"Cc", "Cf", "Zl", "Zp", "Zs"}
    chars = map(chr, range(0x110000))
    assert not [char for char in chars if is_plain(char) and unicodedata.category(char) in blank]
