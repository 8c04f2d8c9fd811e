from typing import Any

import pytest
from peltier_client.errors import InvalidInput
from peltier_client.resources import predict


@pytest.mark.parametrize(
    ("inputs", "sent"),
    [
        ("a", b'{"inputs":"a"}'),
        (["a", "b"], b'{"inputs":["a","b"]}'),
        ([("a", "b")], b'{"inputs":[["a","b"]]}'),
        ((text for text in "ab"), b'{"inputs":["a","b"]}'),
    ],
)
def test_inputs_of_every_shape(inputs: Any, sent: bytes) -> None:
    """Texts, lists, pairs and iterators become the contract's body, without keys that say nothing."""
    request = predict.predict("sst2", inputs, {})
    assert (request.method, request.path, request.json) == ("POST", "/v1/tasks/sst2/predict", sent)


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        (("premise", "hypothesis"), {}, r"write \[\(text, pair\)\]"),
        ([], {}, "^inputs: must be a text, a non-empty list"),
        ([1], {}, "^inputs: must be a text, a non-empty list"),
        (["\ud800"], {}, "^inputs: must be .* in valid Unicode$"),
        ("a", {"topk": 1}, r"^parameters\.topk is not a known key$"),
        ("a", {"top_k": 0}, r"^parameters\.top_k: input should be greater than or equal to 1$"),
        ("a", {"num_beams": 17}, r"^parameters\.num_beams: input should be less than or equal to 16$"),
        ("a", {"temperature": float("nan")}, r"^parameters\.temperature: "),
        ("a", {"answer": "guess"}, r"^parameters\.answer: input should be 'score' or 'generate'$"),
    ],
)
def test_refused_before_sending(inputs: Any, options: Any, message: str) -> None:
    """A mistake is one sentence that names the thing and the rule."""
    with pytest.raises(InvalidInput, match=message):
        predict.predict("sst2", inputs, options)


def test_a_streamed_body() -> None:
    """One input, and only what was asked for; greedy is said where it is asked for."""
    request = predict.stream("e2e", ("a", "b"), {"temperature": 0.0, "max_new_tokens": 5})
    assert request.path == "/v1/tasks/e2e/predict"
    assert request.json == (b'{"inputs":[["a","b"]],"parameters":{"max_new_tokens":5,"temperature":0.0},"stream":true}')


def test_embeddings_are_predictions() -> None:
    """With the dimensions among the other parameters."""
    request = predict.embed("vectors", ["a", "b"], {"dimensions": 2, "timeout_ms": 10})
    assert request.path == "/v1/tasks/vectors/predict"
    assert request.json == b'{"inputs":["a","b"],"parameters":{"dimensions":2,"timeout_ms":10}}'
    assert predict.embed("_backbone", "a", {}).json == b'{"inputs":"a"}'


@pytest.mark.parametrize(
    ("tasks", "text", "message"),
    [
        ([], "a", "^tasks: list should have at least 1 item"),
        (["a"], ["b"], "^input: must be a text or a"),
        (["a"], None, "^a body has either requests, or tasks and an input$"),
    ],
)
def test_tasks_refused_before_sending(tasks: Any, text: Any, message: str) -> None:
    """No task, no input, and a list in the place of one input."""
    with pytest.raises(InvalidInput, match=message):
        predict.predict_tasks(tasks, text, {})


def test_a_mixed_body() -> None:
    """Each item carries its task, its input and the parameters asked for."""
    request = predict.predict_mixed([("a", "x"), ("b@2", ("x", "y"))], {"top_k": 1})
    assert request.json == (
        b'{"requests":[{"task":"a","input":"x","parameters":{"top_k":1}},'
        b'{"task":"b@2","input":["x","y"],"parameters":{"top_k":1}}]}'
    )
