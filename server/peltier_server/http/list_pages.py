"""Pages of lists: bounded in entries and in bytes, and written in turns with the work of other tenants."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from fastapi import Response
from pydantic import BaseModel
from pydantic_core import to_json

from peltier_server.context import RequestContext
from peltier_server.fairness.preparation import Preparation
from peltier_server.inference.prediction import JSONBytes, write_pieces

T = TypeVar("T")

# Bytes after which a page has no further entry.
MAX_PAGE_BYTES = 1024 * 1024


class Shown(NamedTuple, Generic[T]):
    """The first and the last entry of a page, None if it is empty, and whether others follow."""

    first: T | None
    last: T | None
    has_more: bool


class ListPage(NamedTuple, Generic[T]):
    """A page of at most `limit` of `entries`, of which there is one more if there is a next page: under the key `name`
    each entry as `describe` returns it, and beside that the keys that `rest` returns."""

    name: str
    entries: Iterable[T]
    limit: int
    describe: Callable[[T], BaseModel]
    rest: Callable[[Shown[T]], Mapping[str, Any]]


async def answer_page(preparation: Preparation, context: RequestContext, page: ListPage[T]) -> Response:
    """The answer with the page. The entries of a long one are described and written in a thread."""
    return JSONBytes(await write_pieces(preparation, context, _pieces(page)), {})


def by_cursor(id_of: Callable[[T], object]) -> Callable[[Shown[T]], Mapping[str, Any]]:
    """The `next_cursor` of a page whose next one follows the entry with this id."""

    def rest(shown: Shown[T]) -> Mapping[str, Any]:
        return {"next_cursor": str(id_of(shown.last)) if shown.has_more and shown.last is not None else None}

    return rest


def by_ids(id_of: Callable[[T], str]) -> Callable[[Shown[T]], Mapping[str, Any]]:
    """The ids of a page in the shape of OpenAI's API."""

    def rest(shown: Shown[T]) -> Mapping[str, Any]:
        first, last = (None if one is None else id_of(one) for one in (shown.first, shown.last))
        return {**has_more(shown), "first_id": first, "last_id": last}

    return rest


def has_more(shown: Shown[Any]) -> Mapping[str, Any]:
    """What a page in the shape of OpenAI's API has in any case."""
    return {"object": "list", "has_more": shown.has_more}


def _pieces(page: ListPage[T]) -> Iterator[bytes]:
    entries = iter(page.entries)
    first: T | None = None
    last: T | None = None
    before, num_bytes = f'{{"{page.name}":['.encode(), 0
    for entry in islice(entries, page.limit):
        piece = to_json(page.describe(entry), by_alias=True)
        yield before + piece
        first, last = entry if first is None else first, entry
        before, num_bytes = b",", num_bytes + len(piece)
        if num_bytes >= MAX_PAGE_BYTES:
            break
    opening = before if last is None else b""
    rest = page.rest(Shown(first, last, next(entries, None) is not None))
    yield opening + b"]," + to_json(rest).removeprefix(b"{") if rest else opening + b"]}"
