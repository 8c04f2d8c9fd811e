"""Answers of an adapter in Python are those of a server that has it."""

from collections.abc import Iterator
from typing import Any

import httpx2
import peltier
import pytest

from tests.server.conftest import Listen, Listening
from tests.support.artifacts import TEXTS

TYPES = ("classification", "multilabel", "regression", "embedding", "ranking", "token-classification", "span")
PAIRS = ("ranking", "span")


@pytest.fixture(scope="module")
def listening(listen: Listen) -> Iterator[Listening]:
    with listen() as started:
        yield started


def inputs_for(task_type: str) -> list[Any]:
    return [(text, TEXTS[0]) if task_type in PAIRS else text for text in TEXTS]


@pytest.mark.parametrize("task_type", TYPES)
def test_answers_are_those_of_the_server(task_type, listening, bert, make_artifact):
    form = "pair" if task_type in PAIRS else "single"
    labels = ("value",) if task_type == "regression" else ("negative", "positive")
    data = make_artifact(bert, "compacter", name=task_type, task_type=task_type, inputs=form, labels=labels)
    adapter = peltier.Adapter(data, bert.name, "cpu")
    uploaded = adapter.publish(listening.url, alias="production")
    assert (uploaded.version, uploaded.created) == (1, True)
    inputs = inputs_for(task_type)
    body = {"inputs": inputs}
    answered = httpx2.post(f"{listening.url}/v1/tasks/{task_type}/predict", json=body, timeout=30).raise_for_status()
    for own, other in zip(adapter.predict(inputs), answered.json()["predictions"], strict=True):
        assert own.keys() <= other.keys()
        for name, value in own.items():
            assert value == pytest.approx(other[name], abs=1e-5) if _is_plain(value) else value == other[name]


def _is_plain(value: Any) -> bool:
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return all(isinstance(one, float) for one in values)


@pytest.mark.parametrize("answer", [None, "generate"])
def test_texts_are_those_of_the_server(answer, listening, t5, make_artifact):
    data = make_artifact(t5, "compacter", name="film", answer=answer)
    (found,) = peltier.Adapter(data, t5.name, "cpu").predict([TEXTS[0]])
    assert "label" in found
