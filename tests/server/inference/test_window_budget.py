"""The windows of long texts that one request may have."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from peltier_adapters.batch.row import Row
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.windows import WindowedText
from peltier_server.inference import predictor, tokenizing

from tests.server.conftest import Running, Serve

TAGS = ("O", "B-person")
# In rows of three words: two windows, four windows, and very many.
TWO, FOUR, MANY = (" ".join(["good"] * count) for count in (6, 12, 13_000))


@pytest.fixture
async def tagging(serve: Serve, bert: Backbone, make_artifact: Callable[..., bytes]) -> AsyncIterator[Running]:
    """A server of at most four windows, with two tasks of five tokens."""
    data = make_artifact(bert, "lora", task_type="token-classification", labels=TAGS, max_length=5)
    async with serve(max_windows=4) as running:
        for name in ("one", "two"):
            assert (await running.upload(data, name)).status_code == 201
        yield running


def _refusal(count: int) -> str:
    return (
        f"the long texts of the request make {count} windows or more; at most 4 are allowed: send fewer or shorter "
        "texts, or set a smaller stride"
    )


async def test_windows_of_all_inputs_count(tagging: Running) -> None:
    """Short texts have none, and without `stride` a long one has none either."""
    assert (await tagging.predict("one", [TWO, TWO, *["bad"] * 9], stride=0)).status_code == 200
    assert (await tagging.predict("one", [FOUR, "bad"], stride=0)).status_code == 200
    assert (await tagging.predict("one", [MANY] * 3)).status_code == 200
    answer = await tagging.predict("one", [TWO, "bad", FOUR, "bad"], stride=0)
    assert (answer.status_code, answer.json()["error"]["message"]) == (422, _refusal(6))


async def test_too_many_windows_are_not_made(tagging: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of 65,536 characters is refused when its tokens are known; the texts behind it are not read."""
    read, encode = list[int](), tokenizing._encode_one

    def record(*args: Any) -> Any:
        read.append(len(args[-1]))
        return encode(*args)

    monkeypatch.setattr(tokenizing, "_encode_one", record)
    monkeypatch.setattr(WindowedText, "rows", None)
    answer = await tagging.predict("one", [MANY, *["bad " * 20] * 8], stride=0)
    assert (answer.status_code, answer.json()["error"]["message"]) == (422, _refusal(4334))
    assert read == [len(MANY)]


async def test_the_parts_of_a_mixed_request_share_them(tagging: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an input for each task or one for all; no row of a refused part is made, and the others are answered."""
    rows = list[Row]()
    monkeypatch.setattr(predictor, "Row", lambda *args, **options: rows.append(Row(*args, **options)) or rows[-1])
    items = [{"task": task, "input": TWO, "parameters": {"stride": 0}} for task in ("one", "two", "one")]
    for answer in (
        await tagging.predict_mixed(*items),
        await tagging.predict_tasks("one", "two", "one@1", text=TWO, stride=0),
    ):
        rows.clear()
        results = answer.json()["results"]
        assert ["error" in one for one in results] == [False, False, True]
        assert results[2]["error"]["message"] == _refusal(6)
    again = await tagging.predict_tasks("one", "two", "one@1", text=TWO, stride=0)
    assert (again.status_code, len(rows)) == (200, 4)
