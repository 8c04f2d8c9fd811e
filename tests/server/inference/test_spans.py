"""Answers to questions over HTTP: their places in the context, windows, and parameters that do not fit."""

from collections.abc import Callable
from typing import Any

import pytest
from peltier_adapters.answers.spans import best_span
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.inputs import LongTexts, encode_windows
from peltier_adapters.residency.bank import Resident
from peltier_adapters.spec.tasks import SpanSpec
from peltier_backbone.backbone import Backbone
from peltier_client.exchange.results import PredictionBody
from peltier_client.protocol.predict import PredictResponse

from tests.server.conftest import IN_ONE_LOOP, Running

pytestmark = IN_ONE_LOOP

PAIR = ["who is dull ?", "a good film, the actor is dull"]
LONG = ["is it ?", "good dull film is bad " * 8]


@pytest.fixture(scope="module")
def artifact(bert: Backbone, make_artifact: Callable[..., bytes]) -> bytes:
    return make_artifact(bert, "unipelt-apl", name="qa", task_type="span", inputs="pair", max_length=24)


def expected(bert: Backbone, resident: Resident, pair: list[str], *, raw: bool = False, **how: Any) -> dict[str, Any]:
    """What the parts give, called one by one."""
    rows = encode_windows(bert, resident.task, (pair[0], pair[1]), LongTexts(**how))
    windows = [(row, forward(bert, [Row(row, resident)])[0].logits) for row in rows]
    found = best_span(pair[1], windows, SpanSpec(), raw_scores=raw)
    return {**found._asdict(), "score": pytest.approx(found.score, abs=1e-5)}


async def test_an_answer_has_its_characters(published: Running, bert: Backbone, resident: Resident) -> None:
    """The answer is that of the pipeline's rules (`test_spans.py` of the adapters)."""
    body = (await published.predict("qa", [PAIR, LONG])).json()
    assert body["predictions"] == [expected(bert, resident, pair) for pair in (PAIR, LONG)]
    for found, pair in zip(body["predictions"], (PAIR, LONG), strict=True):
        assert found["answer"] == pair[1][found["start"] : found["end"]] != ""
    assert body["usage"]["truncated_inputs"] == 1
    PredictResponse.model_validate(body)
    assert PredictionBody.model_validate(body).predictions[0].answer == body["predictions"][0]["answer"]
    raw = (await published.predict("qa", [PAIR], raw_scores=True)).json()["predictions"]
    assert raw == [expected(bert, resident, PAIR, raw=True)]


async def test_long_contexts_are_read_in_windows(published: Running, bert: Backbone, resident: Resident) -> None:
    """The question is in each of them, each is charged, and other inputs of the request keep their answers."""
    body = (await published.predict("qa", [PAIR, LONG, PAIR], stride=4, truncate=False)).json()
    assert body["predictions"] == [expected(bert, resident, pair, stride=4) for pair in (PAIR, LONG, PAIR)]
    rows = encode_windows(bert, resident.task, (LONG[0], LONG[1]), LongTexts(stride=4))
    short = encode_windows(bert, resident.task, (PAIR[0], PAIR[1]))
    assert len(rows) > 2
    assert body["usage"] == {"tokens": sum(map(len, rows)) + 2 * len(short[0]), "truncated_inputs": 0}
    gates = (await published.predict("qa", [LONG], stride=4, return_gates=True)).json()["predictions"][0]["gates"]
    assert all(0 < layers[0] < 1 for layers in gates.values())


async def test_spans_are_items_of_mixed_requests(published: Running, bert: Backbone, resident: Resident) -> None:
    requests = [{"task": "qa", "input": PAIR}, {"task": "sst2", "input": "bad"}, {"task": "qa", "input": "bad"}]
    found = (await published.client.post("/v1/predict", json={"requests": requests})).json()["results"]
    assert found[0]["predictions"] == [expected(bert, resident, PAIR)]
    assert found[1]["predictions"][0]["label"] in ("a", "b", "negative", "positive", "0", "1")
    assert found[2]["error"]["message"] == "the input is one text; this task takes a pair of texts [text, pair]"
