"""Token classification over HTTP: entities, windows, and parameters that do not fit."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from peltier_adapters.answers.entities import find_entities, join_windows, tag_row
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.inputs import LongTexts, at_words, encode_windows
from peltier_adapters.residency.bank import Resident
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.token_places import words_at_spaces
from peltier_client.protocol.predict import PredictResponse
from peltier_server.inference import response

from tests.server.conftest import IN_ONE_LOOP, Running

pytestmark = IN_ONE_LOOP

TAGS = ("O", "B-person", "I-person", "B-place", "I-place")
TEXT = "a good film, the actor is dull"
LONG = "good dull film is bad " * 8
MAX_LENGTH = 16


@pytest.fixture(scope="module")
def artifact(bert: Backbone, make_artifact: Callable[..., bytes]) -> bytes:
    return make_artifact(
        bert, "unipelt-apl", name="ner", task_type="token-classification", labels=TAGS, max_length=MAX_LENGTH
    )


def _expected(bert, resident, text, *, aggregation="first", spaces=False, **how):
    """What the parts give, called one by one."""
    rows = encode_windows(bert, resident.task, text, LongTexts(**how))
    if spaces:
        rows = at_words(rows, words_at_spaces(text))
    tags = [tag_row(one := Row(row, resident), forward(bert, [one])[0]).tags for row in rows]
    return [
        {**one._asdict(), "text": text[one.start : one.end], "score": pytest.approx(one.score, abs=1e-5)}
        for one in find_entities(TAGS, join_windows(rows, tags), aggregation)
    ]


@pytest.mark.parametrize("aggregation", ["none", "simple", "first", "average", "max"])
async def test_entities_have_their_characters(aggregation, published, bert, resident):
    """The answer is that of the pipeline's rules (`test_entities.py` of the adapters); `first` is the default."""
    body = (await published.predict("ner", [TEXT, "bad"], aggregation=aggregation)).json()
    expected = [_expected(bert, resident, text, aggregation=aggregation) for text in (TEXT, "bad")]
    assert body["predictions"] == [{"entities": one} for one in expected]
    assert any(expected), "the random adapter finds something"
    if aggregation == "first":
        assert (await published.predict("ner", [TEXT, "bad"])).json()["predictions"] == body["predictions"]
    PredictResponse.model_validate(body)


async def test_words_may_be_those_between_spaces(published: Running, bert: Backbone, resident: Resident) -> None:
    found = (await published.predict("ner", TEXT, words="spaces")).json()["predictions"][0]["entities"]
    assert found == _expected(bert, resident, TEXT, spaces=True) != _expected(bert, resident, TEXT)
    ends = {end for _, end in words_at_spaces(TEXT)}
    assert {one["end"] for one in found} <= ends


async def test_what_truncation_cuts_is_said(published: Running, bert: Backbone, resident: Resident) -> None:
    answer = await published.predict("ner", [TEXT, LONG])
    whole, cut = answer.json()["predictions"]
    assert "truncated_at" not in whole
    assert (cut["truncated_at"], cut["entities"]) == (61, _expected(bert, resident, LONG))
    assert answer.json()["usage"]["truncated_inputs"] == 1
    assert answer.headers["x-truncated-inputs"] == "1"
    refused = await published.predict("ner", [TEXT, LONG], truncate=False)
    assert refused.status_code == 422
    assert refused.json()["error"]["message"] == "input 1: the input has 42 tokens; this task takes at most 16"


async def test_long_texts_are_read_in_windows(published: Running, bert: Backbone, resident: Resident) -> None:
    """Nothing is truncated, each row is charged, and other inputs of the request keep their answers."""
    body = (await published.predict("ner", [TEXT, LONG, "bad"], stride=4, truncate=False)).json()
    expected = [_expected(bert, resident, text, stride=4) for text in (TEXT, LONG, "bad")]
    assert [one["entities"] for one in body["predictions"]] == expected
    assert body["usage"] == {"tokens": 10 + 3 * 16 + 12 + 3, "truncated_inputs": 0}
    assert max(one["end"] for one in expected[1]) > 64


async def test_many_windows_are_not_read_on_the_event_loop(published: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few short texts are; the answer to a long one is written in a thread, in turns with other tenants' work."""
    read, threads = response.read_answers, list[int]()

    def record(*args: Any, **options: Any) -> Any:
        threads.append(threading.get_ident())
        return read(*args, **options)

    monkeypatch.setattr(response, "read_answers", record)
    for text in (TEXT, LONG * 10):
        assert (await published.predict("ner", text, stride=4)).status_code == 200
    assert [one == threading.get_ident() for one in threads] == [True, False]


async def test_gates_of_windows_are_means(published: Running) -> None:
    one = (await published.predict("ner", LONG, stride=4, return_gates=True)).json()["predictions"][0]
    short = (await published.predict("ner", "bad", return_gates=True)).json()["predictions"][0]
    assert one["gates"].keys() == short["gates"].keys() > {"prefix"}
    assert all(len(layers) == 3 and 0 < layers[0] < 1 for layers in one["gates"].values())


async def test_rows_of_every_kind_share_a_batch(published: Running) -> None:
    alone = [(await published.predict(task, text)).json()["predictions"] for task, text in
             (("ner", TEXT), ("sst2", TEXT), ("ner", LONG))]  # fmt: skip
    body = (await published.predict_mixed(
        {"task": "ner", "input": TEXT}, {"task": "sst2", "input": TEXT}, {"task": "ner", "input": LONG},
        {"task": "ner", "input": TEXT, "parameters": {"top_k": 2}},
    )).json()["results"]  # fmt: skip
    for one, result in zip(alone, body, strict=False):
        assert _rounded(result["predictions"]) == _rounded(one)
    assert body[3]["error"]["message"] == "top_k is not for tasks of type token-classification"


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return pytest.approx(value, abs=1e-5) if isinstance(value, float) else value
