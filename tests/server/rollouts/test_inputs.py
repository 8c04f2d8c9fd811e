"""Vectors of inputs, and their drift over replicas and restarts."""

from collections.abc import Callable

import numpy as np
import pytest
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from peltier_server.metrics.drift import CLEAR_DISTANCE, mean_distance
from peltier_server.rollouts import rollouts
from peltier_server.rollouts.inputs import vectors_of

from tests.server.conftest import Serve


def windows(*ids: int) -> tuple[Encoded, ...]:
    """An input of two windows, the last one of one token."""
    return Encoded(ids[:-1], (0,) * (len(ids) - 1)), Encoded(ids[-1:], (0,))


def test_a_vector_is_the_mean_of_its_tokens() -> None:
    """Whatever the other inputs are. It depends on the tokens alone, so replicas of any version agree."""
    first, second, both = vectors_of([windows(7, 7), windows(8, 8, 8), windows(7, 7, 8)])
    assert set(first) == set(second) == {0, 255}
    assert list(both) == [round((2 * a + b) / 3) for a, b in zip(first, second, strict=True)]
    assert vectors_of([windows(7, 7, 8)]) == [both]
    assert first.hex() == "ffff00ff00ffffff00000000ffff00ff0000ffff0000ff0000ff00ffff0000ff"
    assert vectors_of([]) == []


def test_chance_is_no_clear_distance() -> None:
    """Of 500 rows of the same texts; with half of other texts it is clear. 20 times: the rule errs once in ten
    thousand times."""
    draw = np.random.default_rng(0)
    shares = draw.dirichlet(np.full(500, 0.1), 2)  # two kinds of texts, by their tokens

    def sample(kind: int, rows: int) -> list[bytes]:
        return vectors_of([windows(*draw.choice(500, 12, p=shares[kind])) for _ in range(rows)])

    for _ in range(20):
        first = sample(0, 500)
        assert mean_distance(first, sample(0, 500)) < CLEAR_DISTANCE
        assert mean_distance(first, sample(0, 250) + sample(1, 250)) > CLEAR_DISTANCE


async def test_a_restarted_server_knows_the_first_inputs(
    serve: Serve, bert: Backbone, make_artifact: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds the drift of its inputs from those that a server before it has answered, and names it."""
    monkeypatch.setattr(rollouts, "WINDOW_ROWS", 40)
    async with serve(recorded_answers_per_second=1000) as first:
        await first.upload(make_artifact(bert, "bitfit", name="a"))
        await first.predict("a", [f"a {word} film" for word in ("good", "bad", "fine", "new")] * 10)
    async with serve(recorded_answers_per_second=1000) as second:
        await second.predict("a", [f"the plot is {word}" for word in ("very odd", "dull", "old", "big")] * 10)
        await second.service.rollouts.report()
        await second.service.rollouts.compare_inputs()
        (version,) = (await second.client.get("/v1/activity")).json()["versions"]
        assert version["input_drift"] > CLEAR_DISTANCE
        health = second.service.metrics.drift.drifting()
        assert [labels.version for labels, _ in health] == ["1"]
