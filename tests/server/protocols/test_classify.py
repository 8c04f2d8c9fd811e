"""Classifications in the shapes of text-embeddings-inference and vLLM, and SageMaker's routes, over a real socket."""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import numpy as np
import pytest
from peltier_backbone.backbone import Backbone

from tests.server.conftest import Listen, Listening


@pytest.fixture(scope="module")
def listening(listen: Listen, bert: Backbone, make_artifact: Callable[..., bytes]) -> Iterator[Listening]:
    """A classification of texts and one of pairs, a regression and an embedding."""
    with listen() as started:
        started.upload(make_artifact(bert, "lora", name="film"))
        started.upload(make_artifact(bert, "compacter", name="nli", inputs="pair"))
        started.upload(make_artifact(bert, "lora", name="stars", task_type="regression", labels=("stars",)))
        started.upload(make_artifact(bert, "lora", name="vectors", task_type="embedding"))
        yield started


def post(listening: Listening, path: str, *, headers: dict[str, str] | None = None, **body: object) -> httpx2.Response:
    return httpx2.post(f"{listening.url}{path}", json=body, headers=headers, timeout=30)


def predicted(listening: Listening, task: str, inputs: object, **parameters: object) -> list[dict[str, Any]]:
    answer = post(listening, f"/v1/tasks/{task}/predict", inputs=inputs, parameters=parameters)
    found: list[dict[str, Any]] = answer.json()["predictions"]
    return found


def best_first(scores: dict[str, float]) -> list[dict[str, object]]:
    return [{"score": score, "label": label} for label, score in sorted(scores.items(), key=lambda one: -one[1])]


def test_one_input_is_answered_by_its_labels(listening: Listening) -> None:
    """A text, a list of one text, or a pair; best first."""
    (film,) = predicted(listening, "film", "a good film")
    (nli,) = predicted(listening, "nli", [["a", "b"]])
    for inputs in ("a good film", ["a good film"]):
        answer = post(listening, "/predict", inputs=inputs, adapter_id="film")
        assert answer.json() == best_first(film["scores"])
    assert post(listening, "/predict", inputs=["a", "b"], adapter_id="nli").json() == best_first(nli["scores"])


def test_a_batch_is_answered_by_a_list_for_each_input(listening: Listening) -> None:
    """With the outputs of the head instead of probabilities, where they are wanted."""
    right = predicted(listening, "film", ["a", "bad"], raw_scores=True)
    answer = post(listening, "/predict", inputs=[["a"], ["bad"]], adapter_id="film", raw_scores=True)
    assert answer.json() == [best_first(one["scores"]) for one in right]
    (stars,) = predicted(listening, "stars", "a")
    assert post(listening, "/predict", inputs=[["a"]], adapter_id="stars").json() == [
        [{"score": stars["value"], "label": "stars"}]
    ]


def test_vllms_shape_has_the_best_label_and_all_probabilities(listening: Listening) -> None:
    """In the order of the task's labels."""
    right = predicted(listening, "film", ["a", "bad"])
    answer = post(listening, "/classify", model="film", input=["a", "bad"]).json()
    assert [one["label"] for one in answer["data"]] == [one["label"] for one in right]
    assert [one["probs"] for one in answer["data"]] == [list(one["scores"].values()) for one in right]
    assert [(one["index"], one["num_classes"]) for one in answer["data"]] == [(0, 2), (1, 2)]
    assert (answer["object"], answer["model"], answer["usage"]["completion_tokens"]) == ("list", "film", 0)


def test_many_texts_are_written_in_a_thread(listening: Listening) -> None:
    """In the same form, by both routes."""
    texts = ["a", "bad", "a good film"] * 200
    right = predicted(listening, "film", texts)
    ranked = post(listening, "/predict", inputs=[[text] for text in texts], adapter_id="film").json()
    assert ranked == [best_first(one["scores"]) for one in right]
    found = post(listening, "/classify", model="film", input=texts).json()["data"]
    assert [(one["index"], one["label"]) for one in found] == [(n, one["label"]) for n, one in enumerate(right)]


@pytest.mark.parametrize("encoding_format", ["float", "base64"])
def test_vllms_pooling_has_vectors_or_probabilities(encoding_format: str, listening: Listening) -> None:
    """Embeddings of an embedding task, and the probabilities of a classification."""
    right = {"vectors": [one["embedding"] for one in predicted(listening, "vectors", ["a", "bad"])]}
    right["film"] = [list(one["scores"].values()) for one in predicted(listening, "film", ["a", "bad"])]
    for model, vectors in right.items():
        body = {"model": model, "input": ["a", "bad"], "encoding_format": encoding_format}
        found = [one["data"] for one in post(listening, "/pooling", **body).json()["data"]]
        if encoding_format == "base64":
            found = [np.frombuffer(base64.b64decode(one), "<f4").tolist() for one in found]
        np.testing.assert_array_equal(np.float32(found), np.float32(vectors))


def test_sagemaker_names_the_task_in_a_header(listening: Listening) -> None:
    """The answer is that of the native route; the probe needs no key."""
    assert httpx2.get(f"{listening.url}/ping", timeout=60).status_code == 200
    answer = post(
        listening,
        "/invocations",
        headers={"x-amzn-sagemaker-custom-attributes": "trace=1, task=film"},
        inputs=["a", "bad"],
    )
    assert answer.json()["predictions"] == predicted(listening, "film", ["a", "bad"])


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/predict", {"inputs": "a", "adapter_id": "vectors"}, "task 'vectors' is of type embedding; this address"),
        ("/predict", {"inputs": ["a", "b", "c"], "adapter_id": "film"}, "inputs: must be a text, a pair of texts, or"),
        ("/predict", {"inputs": [["a"], []], "adapter_id": "film"}, "inputs: must be a text, a pair of texts, or a"),
        ("/predict", {"inputs": "a"}, "adapter_id is missing"),
        ("/predict", {"inputs": "good " * 99, "adapter_id": "film"}, "the input has 101 tokens; this task takes at"),
        ("/classify", {"model": "stars", "input": "a"}, "task 'stars' is of type regression; this address answers"),
        ("/classify", {"model": "film", "input": [1, 2]}, "input: must be a text or a non-empty list of texts, in"),
        ("/pooling", {"model": "stars", "input": "a"}, "model 'stars' is a regression task; only tasks of the types"),
        ("/pooling", {"model": "film", "input": "a", "task": "embed"}, "task is 'embed': model 'film' is a classific"),
        ("/invocations", {"inputs": "a"}, "the header x-amzn-sagemaker-custom-attributes names no task: Custom"),
    ],
)
def test_bad_requests_are_one_sentence(path: str, body: dict[str, object], message: str, listening: Listening) -> None:
    """With the status of the native routes."""
    answer = post(listening, path, **body)
    assert (answer.status_code, answer.json()["error"]["message"][: len(message)]) == (422, message)
