"""Finds in which unit wrong offsets were counted. Imports no torch."""

_UNITS = (("UTF-16 code units", "utf-16-le", 2), ("bytes of UTF-8", "utf-8", 1))


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
