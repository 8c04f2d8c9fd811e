"""How lists are asked for a page at a time."""

from typing import Annotated

from fastapi import Query

MAX_PAGE = 1000

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="How many entries at most.")]
# A name, or a key's prefix: what the entries are in order of.
NameCursor = Annotated[str, Query(max_length=64, description="`next_cursor` of the page before.")]
# Eighteen digits are an integer in every database.
NumberCursor = Annotated[str, Query(pattern="^[0-9]{0,18}$", description="`next_cursor` of the page before.")]
