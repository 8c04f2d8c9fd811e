"""The unit of wrong offsets is found."""

import pytest
from peltier_training.data.offsets import find_piece, unit_of

TEXT = "🙂 Ada é Eve"


@pytest.mark.parametrize(
    ("start", "end", "piece", "found"),
    [
        (3, 6, "Ada", "there if offsets are in UTF-16 code units; they must be in characters"),
        (5, 8, "Ada", "there if offsets are in bytes of UTF-8; they must be in characters"),
        (3, None, "Ada", "there if offsets are in UTF-16 code units; they must be in characters"),
        (2, 4, "Ada", "from 2 to 5; the end is that after the last character"),
        (0, 3, "Eve", "at character 8"),
        (-1, 2, "Eve", "at character 8"),
        (0, 3, "Bob", "nowhere in it"),
        (0, 1, "\ud800", "nowhere in it"),
    ],
)
def test_a_piece_is_found(start: int, end: int | None, piece: str, found: str) -> None:
    """By the units of other languages, and else by its text."""
    assert find_piece(TEXT, start, end, piece) == found


def test_an_end_is_in_a_unit() -> None:
    """The first in which the text is so long."""
    assert [unit_of(TEXT, end) for end in (12, 15, 99)] == ["UTF-16 code units", "bytes of UTF-8", None]
