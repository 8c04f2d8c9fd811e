"""Bounds the size of a JSON text before it is parsed.

Three bytes of JSON, `[],`, take 700 bytes in a parser, and each reported error takes 2,000. A hostile text of a few
megabytes would fill the memory of a server.
"""

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any

# An unterminated string extends to the end. Nothing is read twice, so the time is linear in the length of the text.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[,\[{]', re.DOTALL)


def has_more_tokens(text: bytes, limit: int) -> bool:
    """Whether the text has more than `limit` strings, commas and opening brackets. It has no more values than these."""
    # Each token contains such a byte. Counting bytes is a hundred times as fast as finding the strings.
    if sum(map(text.count, (b'"', b",", b"[", b"{"))) <= limit:
        return False
    return next(islice(_TOKEN.finditer(text), limit, None), None) is not None


def doubled_name(pairs: Iterable[tuple[str, Any]]) -> str | None:
    """The first name that occurs twice in one JSON object, for an `object_pairs_hook`."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    return None
