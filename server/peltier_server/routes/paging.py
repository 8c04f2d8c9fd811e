"""The query parameters of lists that are read page by page."""

from typing import Annotated

from fastapi import Query

MAX_PAGE = 1000

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="How many entries at most.")]
# A cursor of a list that is ordered by name or by the prefix of a key.
NameCursor = Annotated[str, Query(max_length=64, description="`next_cursor` of the page before.")]
# An integer of eighteen digits fits in every database.
NumberCursor = Annotated[str, Query(pattern="^[0-9]{0,18}$", description="`next_cursor` of the page before.")]
