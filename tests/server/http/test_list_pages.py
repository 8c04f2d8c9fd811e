"""Pages of lists: their entries, their bytes, and what says that there are more."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from peltier_server.http import list_pages
from peltier_server.http.list_pages import ListPage, Shown, by_cursor, by_ids
from pydantic import BaseModel


class Entry(BaseModel):
    id: str
    text: str = ""


def written(count: int, limit: int, rest: Any = None, text: str = "") -> dict[str, Any]:
    entries = [Entry(id=str(number), text=text) for number in range(count)]
    page = ListPage("data", entries, limit, lambda one: one, rest or by_cursor(lambda one: one.id))
    found: dict[str, Any] = json.loads(b"".join(list_pages._pieces(page)))
    return found


@pytest.mark.parametrize(("count", "shown", "after"), [(0, 0, None), (2, 2, None), (3, 3, None), (4, 3, "2")])
def test_a_page_has_the_cursor_of_the_next_one(count: int, shown: int, after: str | None) -> None:
    page = written(count, 3)
    assert ([one["id"] for one in page["data"]], page["next_cursor"]) == ([str(one) for one in range(shown)], after)


def test_a_page_ends_after_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the entry that exceeds them, so that each page has one; the next page begins after it."""
    monkeypatch.setattr(list_pages, "MAX_PAGE_BYTES", 200)
    page = written(9, 9, text="x" * 90)
    assert ([one["id"] for one in page["data"]], page["next_cursor"]) == (["0", "1"], "1")
    page = written(2, 9, text="x" * 90)
    assert ([one["id"] for one in page["data"]], page["next_cursor"]) == (["0", "1"], None)
    assert len(written(9, 9, text="x" * 900)["data"]) == 1


def test_a_page_of_openai_has_its_first_and_last_id() -> None:
    rest = by_ids(lambda one: one.id)
    assert written(3, 2, rest) | {"data": []} == {
        "object": "list", "data": [], "has_more": True, "first_id": "0", "last_id": "1",
    }  # fmt: skip
    assert written(0, 2, rest) == {"object": "list", "data": [], "has_more": False, "first_id": None, "last_id": None}


def test_a_page_may_have_nothing_but_its_list() -> None:
    def nothing(_: Shown[Entry]) -> Mapping[str, Any]:
        return {}

    assert written(1, 1, nothing) == {"data": [{"id": "0", "text": ""}]}
