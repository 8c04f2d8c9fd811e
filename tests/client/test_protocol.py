import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_client.errors import ErrorBody, InvalidInput
from peltier_client.protocol.names import NAME_PATTERN, TaskReference, check_name
from peltier_client.protocol.predict import (
    AdapterRef,
    ClassificationPrediction,
    MixedPredictRequest,
    MixedPredictResponse,
    MultilabelPrediction,
    PredictRequest,
    PredictResponse,
    RegressionPrediction,
    TextPrediction,
    Usage,
)
from peltier_client.protocol.session import session_id
from pydantic import ValidationError

ANSWER: dict[str, Any] = {
    "task": "sst2",
    "adapter": {"tenant": "default", "name": "sst2", "version": 3, "digest": "sha256:0", "preset": "compacter"},
    "predictions": [{"label": "positive", "score": 0.98, "scores": {"negative": 0.02, "positive": 0.98}}],
    "usage": {"tokens": 12, "truncated_inputs": 1},
    "timings_ms": {"queue": 0.4, "load": 0.0, "compute": 7.9, "total": 8.8},
    "batch": {"rows": 32, "adapters": 17},
}

names = st.from_regex(NAME_PATTERN, fullmatch=True)
aliases = names.filter(lambda name: not name.isdecimal())


@given(name=names, selector=st.none() | st.integers(1, 999_999_999) | aliases, tenant=st.none() | names)
def test_a_reference_reads_back_what_it_wrote(name: str, selector: int | str | None, tenant: str | None) -> None:
    """Any name, selector and tenant survive text and back."""
    version = selector if isinstance(selector, int) else None
    alias = selector if isinstance(selector, str) else None
    reference = TaskReference(name, version, alias, tenant)
    assert TaskReference.parse(str(reference)) == reference


@given(st.text(max_size=100))
def test_any_text_is_a_reference_or_a_sentence(text: str) -> None:
    """Parsing never fails otherwise than with InvalidInput, in one line of bounded length."""
    try:
        outcome = str(TaskReference.parse(text))
    except InvalidInput as error:
        outcome = str(error)
    assert outcome == text or ("\n" not in outcome and len(outcome) < 700)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a@",
        ":a",
        "a@0",
        "a@007",
        "a@b@c",
        "t:u:a",
        "../a",
        "A",
        "a/b",
        "a\n",
        "-a",
        "x" * 64,
        "a@1000000000",
        "_backbone@1",
        "_backbone@live",
        "a:_backbone",
        "_backbones",
        "_a",
    ],
)
def test_references_that_break_a_rule(text: str) -> None:
    """Each malformed reference is refused."""
    with pytest.raises(InvalidInput):
        TaskReference.parse(text)


def test_the_backbone_is_a_task() -> None:
    """Its name is no adapter's."""
    assert str(TaskReference.parse("_backbone")) == "_backbone"
    with pytest.raises(InvalidInput):
        check_name("_backbone")


def test_a_refused_name_is_named() -> None:
    """The message holds the thing, the value and the rule."""
    with pytest.raises(InvalidInput, match=r"^tenant 'Bad' is not allowed: a name has 1 to 63 characters"):
        check_name("Bad", "tenant")


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("a", "a"),
        (["a", "b"], ["a", "b"]),
        ([["a", "b"]], [("a", "b")]),
        ([["a", "b", "c"]], [("a", "b", "c")]),
        ("", ""),
    ],
)
def test_inputs_in_their_shapes(sent: object, read: object) -> None:
    """A text, texts, pairs and triples are read as such, from JSON as well as from Python values."""
    assert PredictRequest.model_validate({"inputs": sent}).inputs == read
    assert PredictRequest.model_validate_json(json.dumps({"inputs": sent})).inputs == read


@pytest.mark.parametrize(
    "inputs", [[], [[]], ["a", ["b", "c"]], [["a"]], [["a", "b", "c", "d"]], 1, None, {}, [1], True, "\ud800"]
)
def test_other_shapes_get_one_sentence(inputs: object) -> None:
    """A wrong shape is one complaint, not one for each shape it might have been."""
    with pytest.raises(ValidationError) as caught:
        PredictRequest.model_validate({"inputs": inputs})
    assert [error["loc"] for error in caught.value.errors()] == [("inputs",)]
    assert "non-empty list of texts" in caught.value.errors()[0]["msg"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"inputs": "a", "input": "b"},
        {"inputs": "a", "parameters": {"topk": 1}},
        {"inputs": "a", "parameters": {"top_k": 0}},
        {"inputs": "a", "parameters": {"top_k": "3"}},
        {"inputs": "a", "parameters": {"top_k": True}},
        {"inputs": "a", "parameters": {"raw_scores": 1}},
        {"inputs": "a", "parameters": {"timeout_ms": 0}},
        {"inputs": "a", "parameters": {"timeout_ms": 10**12}},
        {"inputs": "a", "parameters": {"priority": 11}},
        {"inputs": "a", "parameters": {"priority": 1.0}},
        {"inputs": "a", "parameters": None},
        {"inputs": "a", "parameters": {"max_new_tokens": 0}},
        {"inputs": "a", "parameters": {"temperature": -0.1}},
        {"inputs": "a", "parameters": {"temperature": "1"}},
        {"inputs": "a", "parameters": {"top_p": 0}},
        {"inputs": "a", "parameters": {"seed": 2**63}},
        {"inputs": "a", "stream": 1},
    ],
)
def test_requests_are_read_to_the_letter(body: dict[str, object]) -> None:
    """Unknown keys and almost-right values are refused rather than guessed at."""
    with pytest.raises(ValidationError):
        PredictRequest.model_validate(body)


def test_a_mixed_request_takes_texts_and_pairs() -> None:
    """In a mixed request two texts in a list are one pair."""
    requests = [{"task": "a", "input": "x"}, {"task": "t:b@2", "input": ["x", "y"]}]
    read = MixedPredictRequest.model_validate({"requests": requests})
    assert [item.input for item in read.requests] == ["x", ("x", "y")]
    with pytest.raises(ValidationError):
        MixedPredictRequest.model_validate({"requests": []})


def test_an_answer_is_written_as_the_contract_says() -> None:
    """What the contract shows is read and written again without a key more or less."""
    response = PredictResponse.model_validate(ANSWER)
    assert isinstance(response.predictions[0], ClassificationPrediction)
    assert response.model_dump(mode="json") == ANSWER


def test_gates_appear_only_when_there_are_some() -> None:
    """A prediction without gates has no such key; one with gates has."""
    assert RegressionPrediction(value=3.7).model_dump_json() == '{"value":3.7}'
    gated = MultilabelPrediction(labels=["a"], scores={"a": 0.9}, gates={"lora": [0.5, 0.25]})
    assert json.loads(gated.model_dump_json())["gates"] == {"lora": [0.5, 0.25]}


def test_a_text_says_only_what_it_has() -> None:
    """A text that is no label has no such key, and texts alone have completion tokens."""
    plain = TextPrediction(text="a", score=0.5, finish_reason="stop")
    assert plain.model_dump_json() == '{"text":"a","score":0.5,"finish_reason":"stop"}'
    assert Usage(tokens=3).model_dump() == {"tokens": 3, "truncated_inputs": 0}
    assert Usage(tokens=3, completion_tokens=0).model_dump() == {
        "tokens": 3, "truncated_inputs": 0, "completion_tokens": 0,
    }  # fmt: skip


@pytest.mark.parametrize("known", [{}, {"label": "positive"}, {"value": 2.5}])
def test_a_text_is_read_as_a_text(known: dict[str, object]) -> None:
    """Also where it has a label or a value beside it."""
    sent = {"text": "positive", "score": 0.5, "finish_reason": "stop", **known}
    response = PredictResponse.model_validate({**ANSWER, "predictions": [sent]})
    assert isinstance(response.predictions[0], TextPrediction)
    assert response.model_dump(mode="json")["predictions"] == [sent]


def test_scores_keep_their_order() -> None:
    """Scores come out in the manifest's order, not sorted."""
    prediction = ClassificationPrediction(label="z", score=1.0, scores={"z": 1.0, "a": 0.0})
    assert list(json.loads(prediction.model_dump_json())["scores"]) == ["z", "a"]


def test_answers_may_grow() -> None:
    """A key that this client does not know is no error in an answer."""
    assert AdapterRef.model_validate({**ANSWER["adapter"], "tier": "device"}).version == 3


def test_mixed_results_are_answers_or_errors() -> None:
    """Each entry is told apart by what it holds."""
    error = {"error": {"code": "adapter_not_found", "message": "no", "details": []}}
    results = MixedPredictResponse.model_validate({"results": [ANSWER, error]}).results
    assert [type(result) for result in results] == [PredictResponse, ErrorBody]


@pytest.mark.parametrize(
    ("task", "tenant", "expected"),
    [
        ("sst2", "acme", "acme/sst2"),
        ("sst2@3", "acme", "acme/sst2"),
        ("other:sst2@live", "acme", "other/sst2"),
        ("other:sst2", None, "other/sst2"),
        ("sst2", None, None),
        ("_backbone", "acme", None),
        ("", "acme", None),
        (None, "acme", None),
        ("film\r\nhost: evil", "acme", None),
        ("é", "acme", None),
        ("x" * 200, "acme", None),
    ],
)
def test_a_session_is_an_adapter(task: str | None, tenant: str | None, expected: str | None) -> None:
    """The header names the owner and the adapter, whatever the version, and is left out where it could not."""
    assert session_id(task, tenant) == expected
