"""Finds a piece of a text at its offset, and in which unit wrong offsets were counted. Imports no torch."""

import re
import unicodedata
from itertools import islice

_WORD = re.compile(r"\S+")
_UNITS = (("UTF-16 code units", "utf-16-le", 2), ("bytes of UTF-8", "utf-8", 1))


def folded(piece: str) -> str:
    """The piece with single spaces in Unicode's normal form NFC. Tools write a line end within a piece as a space."""
    return unicodedata.normalize("NFC", " ".join(piece.split()))


def find_end(text: str, start: int, piece: str) -> int | None:
    """Where a `piece` that begins at `start` ends, if the text there differs at most in white space and in the normal
    form; None for any other text. The piece has a word."""
    if text.startswith(piece, start) and start >= 0:
        return start + len(piece)
    if not 0 <= start < len(text) or text[start].isspace() != piece[0].isspace():
        return None
    words = [folded(word) for word in piece.split()]
    found = list(islice(_WORD.finditer(text, start), len(words)))
    if len(found) < len(words) or [folded(one.group()) for one in found[:-1]] != words[:-1]:
        return None
    last, own = found[-1], words[-1]
    # Decomposed, a word has the most characters.
    lengths = range(len(own), len(unicodedata.normalize("NFD", own)) + 1)
    return next((last.start() + num for num in lengths if folded(last.group()[:num]) == own), None)


def find_piece(text: str, start: int, end: int | None, piece: str) -> str:
    """The end of a sentence about a `piece` that is not the characters [start, end) of its text: in which unit it is
    there, or else at which character it is. Without `end`, it follows from the piece."""
    for unit, encoding, width in _UNITS:
        data, own = text.encode(encoding, "surrogatepass"), piece.encode(encoding, "surrogatepass")
        last = start * width + len(own) if end is None else end * width
        if start >= 0 and data[start * width : last] == own:
            return f"there if offsets are in {unit}; they must be in characters"
    if end is not None and text[start : end + 1] == piece:
        return f"from {start} to {end + 1}; the end is that after the last character"
    found = text.find(piece)
    return f"at character {found}" if found >= 0 else "nowhere in it"


def unit_of(text: str, end: int) -> str | None:
    """The unit in which a text is so long that `end` is in it; None if there is none."""
    return next((unit for unit, encoding, width in _UNITS if end * width <= len(text.encode(encoding))), None)
