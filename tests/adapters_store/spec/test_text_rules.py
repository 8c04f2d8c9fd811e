"""The rules for texts of which nothing can be seen, and for labels."""

import unicodedata

import pytest
from peltier_adapters.spec.text_rules import MAX_LABEL_CHARS, is_plain, is_visible, label_problem

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


@pytest.mark.parametrize(
    ("label", "problem"),
    [
        ("", "has 0 characters; a label has 1 to 256"),
        ("x" * (MAX_LABEL_CHARS + 1), "has 257 characters; a label has 1 to 256"),
        ("a\x1bb", "contains the invisible character U+001B"),
        ("a\nb", "contains the invisible character U+000A"),
        ("a\u2028", "contains the invisible character U+2028"),
        ("\u202egood", "contains the invisible character U+202E"),
        ("\ud800", "contains U+D800, half of a character"),
    ],
)
def test_a_label_that_no_artifact_may_have_is_told_why(label, problem):
    assert label_problem(label).startswith(problem)


@pytest.mark.parametrize("label", ["a", "x" * MAX_LABEL_CHARS, "très bien", "数学", "a b", "👍🏽"])
def test_every_other_label_has_no_problem(label):
    """Spaces, other scripts and pictures are visible."""
    assert label_problem(label) is None
