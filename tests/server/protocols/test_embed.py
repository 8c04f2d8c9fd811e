"""Embeddings in the shape of text-embeddings-inference, over a real socket."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import numpy as np
import pytest
from huggingface_hub import InferenceClient
from peltier_backbone.backbone import Backbone

from tests.server.conftest import Listen, Listening

TEXTS = ["a good film", "the plot was not very good", "bad"]


@pytest.fixture(scope="module")
def listening(listen: Listen, bert: Backbone, make_artifact: Callable[..., bytes]) -> Iterator[Listening]:
    """Embeddings of unit length and others, sparse ones, and a classification."""
    with listen() as started:
        started.upload(make_artifact(bert, "lora", task_type="embedding", normalized=True, name="unit"))
        started.upload(make_artifact(bert, "compacter", task_type="embedding", name="raw"))
        started.upload(make_artifact(bert, "lora", task_type="sparse-embedding", name="sparse"))
        started.upload(make_artifact(bert, "lora", name="film"))
        yield started


def embed(listening: Listening, **body: object) -> Any:
    return httpx2.post(f"{listening.url}/embed", json=body, timeout=30)


def predicted(listening: Listening, task: str, **parameters: object) -> np.ndarray:
    body = {"inputs": TEXTS, "parameters": parameters}
    answer = httpx2.post(f"{listening.url}/v1/tasks/{task}/predict", json=body, timeout=30).json()
    return np.array([one["embedding"] for one in answer["predictions"]])


@pytest.mark.parametrize("task", ["unit", "raw", "_backbone"])
def test_vectors_have_unit_length_where_that_is_wanted(task: str, listening: Listening) -> None:
    """Whatever the task says, also of the first dimensions."""
    raw = predicted(listening, task, dimensions=16, **({} if task == "raw" else {"raw_scores": True}))
    body = {"inputs": TEXTS, "adapter_id": task, "dimensions": 16}
    np.testing.assert_allclose(embed(listening, **body, normalize=False).json(), raw, rtol=1e-6)
    unit = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    np.testing.assert_allclose(embed(listening, **body).json(), unit, atol=1e-6)


def test_a_text_alone_is_embedded_by_the_backbone(listening: Listening) -> None:
    """One text answers a list of one vector; fields of other clients change nothing."""
    answer = embed(listening, inputs=TEXTS[0], truncate=None, truncation_direction="Right", prompt_name=None)
    assert answer.json() == predicted(listening, "_backbone")[:1].tolist()


def test_many_texts_are_written_in_a_thread(listening: Listening) -> None:
    """In the same form."""
    few, many = (np.array(embed(listening, inputs=texts, adapter_id="raw").json()) for texts in (TEXTS, TEXTS * 80))
    np.testing.assert_allclose(many, np.tile(few, (80, 1)), atol=1e-6)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"inputs": "a", "adapter_id": "film"}, "model 'film' is a classification task, which embeds no texts"),
        ({"inputs": [1, 2]}, "inputs: must be a text or a non-empty list of texts"),
        (
            {"inputs": "a", "prompt_name": "query"},
            "prompt_name 'query' is unknown; this server's backbone has no prompts",
        ),
        ({"inputs": "a", "truncation_direction": "left"}, "truncation_direction is 'left': must be 'right'"),
        ({"inputs": "good " * 99, "adapter_id": "unit"}, "the input has 101 tokens; this task takes at most 64"),
        (
            {"inputs": "a", "adapter_id": "sparse"},
            "model 'sparse' is a sparse-embedding task; this route is for embedding tasks",
        ),
        ({"inputs": "a", "dimensions": 49}, "dimensions is 49: the embeddings of this task have 48 values"),
    ],
)
def test_bad_requests_are_one_sentence(body: dict[str, object], message: str, listening: Listening) -> None:
    """With the status of the native routes."""
    answer = embed(listening, **body)
    assert (answer.status_code, answer.json()["error"]["message"][: len(message)]) == (422, message)


def test_what_is_truncated_is_said(listening: Listening) -> None:
    """In a header, because the answer is a bare list."""
    answer = embed(listening, inputs=["good " * 99, "bad"], adapter_id="unit", truncate=True)
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
def test_sparse_embeddings_are_refused_as_the_protocol_refuses_them(
    body: dict[str, object], status: int, error_type: str, message: str, listening: Listening
) -> None:
    """By the status and the body that text-embeddings-inference has for models without them."""
    answer = httpx2.post(f"{listening.url}/embed_sparse", json={"inputs": "a", **body}, timeout=30)
    assert (answer.status_code, answer.json()["error_type"]) == (status, error_type)
    assert answer.json().keys() == {"error", "error_type"}
    assert answer.json()["error"].startswith(message)


def test_sparse_embeddings_have_the_terms_of_a_prediction(listening: Listening) -> None:
    """In the order of the vocabulary; a prediction has them in the order of weights."""
    body = {"inputs": TEXTS, "adapter_id": "sparse"}
    answer = httpx2.post(f"{listening.url}/embed_sparse", json=body, timeout=30)
    found = httpx2.post(f"{listening.url}/v1/tasks/sparse/predict", json={"inputs": TEXTS}, timeout=30).json()
    expected = [{term["index"]: term["weight"] for term in one["terms"]} for one in found["predictions"]]
    assert answer.json() == [
        [{"index": index, "value": weights[index]} for index in sorted(weights)] for weights in expected
    ]
    assert all(1 <= len(weights) <= 24 and min(weights.values()) > 0 for weights in expected)


@pytest.mark.parametrize("task", ["unit", "raw", "_backbone"])
def test_similarity_is_the_cosine(task: str, listening: Listening) -> None:
    """Of the first text with each other, whatever the length of the vectors; by Hugging Face's client too."""
    inputs = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    answer = httpx2.post(f"{listening.url}/similarity", json={"inputs": inputs, "adapter_id": task}, timeout=30)
    vectors = predicted(listening, task)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(answer.json(), unit[1:] @ unit[0], atol=1e-6)


def test_hugging_faces_client_embeds_and_compares(listening: Listening) -> None:
    """`InferenceClient` with the address of a route as its model."""
    client = InferenceClient(token="plt_any")
    vectors = client.feature_extraction(TEXTS, normalize=True, truncate=True, model=f"{listening.url}/embed")
    np.testing.assert_allclose(vectors, predicted(listening, "_backbone"), atol=1e-6)
    cosines = client.sentence_similarity(TEXTS[0], other_sentences=TEXTS[1:], model=f"{listening.url}/similarity")
    np.testing.assert_allclose(cosines, vectors[1:] @ vectors[0], atol=1e-6)
