"""The shapes of text-embeddings-inference and vLLM, and SageMaker's routes, over a real socket."""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import numpy as np
import pytest
from huggingface_hub import InferenceClient
from peltier_backbone.backbone import Backbone

from tests.server.conftest import Listen, Listening

TEXTS = ["a good film", "the plot was not very good", "bad"]
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "film": ("lora", {}),
    "nli": ("compacter", {"inputs": "pair"}),
    "stars": ("lora", {"task_type": "regression", "labels": ("stars",)}),
    "unit": ("lora", {"task_type": "embedding", "normalized": True}),
    "raw": ("compacter", {"task_type": "embedding"}),
    "sparse": ("lora", {"task_type": "sparse-embedding"}),
}


@pytest.fixture(scope="module")
def listening(listen: Listen, bert: Backbone, make_artifact: Callable[..., bytes]) -> Iterator[Listening]:
    with listen() as started:
        for name, (preset, given) in TASKS.items():
            started.upload(make_artifact(bert, preset, name=name, **given))
        yield started


def best_first(scores: dict[str, float]) -> list[dict[str, object]]:
    return [{"score": score, "label": label} for label, score in sorted(scores.items(), key=lambda one: -one[1])]


def test_one_input_is_answered_by_its_labels(listening: Listening) -> None:
    (film,) = listening.predictions("film", "a good film")
    (nli,) = listening.predictions("nli", [["a", "b"]])
    for inputs in ("a good film", ["a good film"]):
        answer = listening.post("/predict", inputs=inputs, adapter_id="film")
        assert answer.json() == best_first(film["scores"])
    assert listening.post("/predict", inputs=["a", "b"], adapter_id="nli").json() == best_first(nli["scores"])


def test_a_batch_is_answered_by_a_list_for_each_input(listening: Listening) -> None:
    right = listening.predictions("film", ["a", "bad"], raw_scores=True)
    answer = listening.post("/predict", inputs=[["a"], ["bad"]], adapter_id="film", raw_scores=True)
    assert answer.json() == [best_first(one["scores"]) for one in right]
    (stars,) = listening.predictions("stars", "a")
    assert listening.post("/predict", inputs=[["a"]], adapter_id="stars").json() == [
        [{"score": stars["value"], "label": "stars"}]
    ]


def test_vllms_shape_has_the_best_label_and_all_probabilities(listening: Listening) -> None:
    right = listening.predictions("film", ["a", "bad"])
    answer = listening.post("/classify", model="film", input=["a", "bad"]).json()
    assert [one["label"] for one in answer["data"]] == [one["label"] for one in right]
    assert [one["probs"] for one in answer["data"]] == [list(one["scores"].values()) for one in right]
    assert [(one["index"], one["num_classes"]) for one in answer["data"]] == [(0, 2), (1, 2)]
    assert (answer["object"], answer["model"], answer["usage"]["completion_tokens"]) == ("list", "film", 0)


def vectors(listening: Listening, task: str, **parameters: object) -> np.ndarray:
    return np.array([one["embedding"] for one in listening.predictions(task, TEXTS, **parameters)])


@pytest.mark.parametrize("encoding_format", ["float", "base64"])
def test_vllms_pooling_has_vectors_or_probabilities(encoding_format: str, listening: Listening) -> None:
    right = {"raw": [one["embedding"] for one in listening.predictions("raw", ["a", "bad"])]}
    right["film"] = [list(one["scores"].values()) for one in listening.predictions("film", ["a", "bad"])]
    for model, expected in right.items():
        body = {"model": model, "input": ["a", "bad"], "encoding_format": encoding_format}
        found = [one["data"] for one in listening.post("/pooling", **body).json()["data"]]
        if encoding_format == "base64":
            found = [np.frombuffer(base64.b64decode(one), "<f4").tolist() for one in found]
        np.testing.assert_array_equal(np.float32(found), np.float32(expected))


def test_sagemaker_names_the_task_in_a_header(listening: Listening) -> None:
    assert httpx2.get(f"{listening.url}/ping", timeout=60).status_code == 200
    headers, body = {"x-amzn-sagemaker-custom-attributes": "trace=1, task=film"}, {"inputs": ["a", "bad"]}
    answer = httpx2.post(f"{listening.url}/invocations", headers=headers, json=body, timeout=60)
    assert answer.json()["predictions"] == listening.predictions("film", ["a", "bad"])


@pytest.mark.parametrize("task", ["unit", "raw", "_backbone"])
def test_vectors_have_unit_length_where_that_is_wanted(task: str, listening: Listening) -> None:
    """Whatever the task says, also of the first dimensions."""
    raw = vectors(listening, task, dimensions=16, **({} if task == "raw" else {"raw_scores": True}))
    body = {"inputs": TEXTS, "adapter_id": task, "dimensions": 16}
    np.testing.assert_allclose(listening.post("/embed", **body, normalize=False).json(), raw, rtol=1e-6)
    unit = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    np.testing.assert_allclose(listening.post("/embed", **body).json(), unit, atol=1e-6)


def test_a_text_alone_is_embedded_by_the_backbone(listening: Listening) -> None:
    answer = listening.post("/embed", inputs=TEXTS[0], truncate=None, truncation_direction="Right", prompt_name=None)
    assert answer.json() == vectors(listening, "_backbone")[:1].tolist()


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/predict", {"inputs": "a", "adapter_id": "raw"}, "task 'raw' is of type embedding; this address"),
        ("/predict", {"inputs": ["a", "b", "c"], "adapter_id": "film"}, "inputs: must be a text, a pair of texts, or"),
        ("/predict", {"inputs": [["a"], []], "adapter_id": "film"}, "inputs: must be a text, a pair of texts, or a"),
        ("/predict", {"inputs": "a"}, "adapter_id is missing"),
        ("/predict", {"inputs": "good " * 99, "adapter_id": "film"}, "the input has 101 tokens; this task takes at"),
        ("/classify", {"model": "stars", "input": "a"}, "task 'stars' is of type regression; this address answers"),
        ("/classify", {"model": "film", "input": [1, 2]}, "input: must be a text or a non-empty list of texts, in"),
        ("/pooling", {"model": "stars", "input": "a"}, "model 'stars' is a regression task; only tasks of the types"),
        ("/pooling", {"model": "film", "input": "a", "task": "embed"}, "task is 'embed': model 'film' is a classific"),
        ("/invocations", {"inputs": "a"}, "the header x-amzn-sagemaker-custom-attributes names no task: Custom"),
        (
            "/embed",
            {"inputs": "a", "adapter_id": "film"},
            "model 'film' is a classification task, which embeds no texts",
        ),
        ("/embed", {"inputs": [1, 2]}, "inputs: must be a text or a non-empty list of texts"),
        (
            "/embed",
            {"inputs": "a", "prompt_name": "query"},
            "prompt_name 'query' is unknown; this server's backbone has no prompts",
        ),
        ("/embed", {"inputs": "a", "truncation_direction": "left"}, "truncation_direction is 'left': must be 'right'"),
        (
            "/embed",
            {"inputs": "good " * 99, "adapter_id": "unit"},
            "the input has 101 tokens; this task takes at most 64",
        ),
        (
            "/embed",
            {"inputs": "a", "adapter_id": "sparse"},
            "model 'sparse' is a sparse-embedding task; this route is for embedding tasks",
        ),
        ("/embed", {"inputs": "a", "dimensions": 49}, "dimensions is 49: the embeddings of this task have 48 values"),
    ],
)
def test_bad_requests_are_one_sentence(path: str, body: dict[str, object], message: str, listening: Listening) -> None:
    answer = listening.post(path, **body)
    assert (answer.status_code, answer.json()["error"]["message"][: len(message)]) == (422, message)


def test_what_is_truncated_is_said(listening: Listening) -> None:
    """In a header, because the answer is a bare list."""
    answer = listening.post("/embed", inputs=["good " * 99, "bad"], adapter_id="unit", truncate=True)
    assert (answer.status_code, answer.headers["x-truncated-inputs"]) == (200, "1")


@pytest.mark.parametrize(
    ("body", "status", "error_type", "message"),
    [
        ({}, 424, "Backend", "model '_backbone' has no sparse embeddings: it is of type embedding"),
        ({"adapter_id": "film"}, 424, "Backend", "model 'film' has no sparse embeddings"),
        ({"adapter_id": "none"}, 404, "Validation", "adapter 'none' does not exist"),
        ({"inputs": []}, 422, "Validation", "inputs: must be a text or a non-empty list of texts"),
    ],
)
def test_sparse_embeddings_are_refused_as_the_protocol_refuses_them(body, status, error_type, message, listening):
    """By the status and the body that text-embeddings-inference has for models without them."""
    answer = listening.post("/embed_sparse", **{"inputs": "a", **body})
    assert (answer.status_code, answer.json()["error_type"]) == (status, error_type)
    assert answer.json().keys() == {"error", "error_type"}
    assert answer.json()["error"].startswith(message)


def test_sparse_embeddings_have_the_terms_of_a_prediction(listening: Listening) -> None:
    body = {"inputs": TEXTS, "adapter_id": "sparse"}
    answer = listening.post("/embed_sparse", **body)
    found = listening.predictions("sparse", TEXTS)
    expected = [{term["index"]: term["weight"] for term in one["terms"]} for one in found]
    assert answer.json() == [
        [{"index": index, "value": weights[index]} for index in sorted(weights)] for weights in expected
    ]
    assert all(1 <= len(weights) <= 24 and min(weights.values()) > 0 for weights in expected)


@pytest.mark.parametrize("task", ["unit", "raw", "_backbone"])
def test_similarity_is_the_cosine(task: str, listening: Listening) -> None:
    inputs = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    answer = listening.post("/similarity", **{"inputs": inputs, "adapter_id": task})
    raw = vectors(listening, task)
    unit = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    np.testing.assert_allclose(answer.json(), unit[1:] @ unit[0], atol=1e-6)


def test_hugging_faces_client_embeds_and_compares(listening: Listening) -> None:
    """`InferenceClient` with the address of a route as its model."""
    client = InferenceClient(token="plt_any")
    found = client.feature_extraction(TEXTS, normalize=True, truncate=True, model=f"{listening.url}/embed")
    np.testing.assert_allclose(found, vectors(listening, "_backbone"), atol=1e-6)
    cosines = client.sentence_similarity(TEXTS[0], other_sentences=TEXTS[1:], model=f"{listening.url}/similarity")
    np.testing.assert_allclose(cosines, found[1:] @ found[0], atol=1e-6)
