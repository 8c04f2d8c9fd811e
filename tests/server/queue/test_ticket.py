"""The results of the rows of one request."""

from collections.abc import Sequence

import pytest
from peltier_client.errors import InferenceFailed
from peltier_server.queue.ticket import Results


@pytest.mark.parametrize(
    ("inputs", "message", "details"),
    [
        (None, "input 1: bad", ["input 1: bad", "input 3: bad"]),
        ([0, 0, 1, 1, 2], "input 0: bad", ["input 0: bad", "input 1: bad"]),
        ([0, 1, 1, 1, 1], "input 1: bad", ["input 1: bad"]),
        ([0, 0, 0, 0, 0], "bad", []),
    ],
)
async def test_an_error_names_the_input(inputs: Sequence[int] | None, message: str, details: list[str]) -> None:
    results: Results[str] = Results(5, inputs)
    results.put(0, ["a", InferenceFailed("bad"), "b", InferenceFailed("bad"), "c"])
    with pytest.raises(InferenceFailed) as caught:
        await results.future
    assert caught.value.message == message
    assert list(caught.value.details) == details
