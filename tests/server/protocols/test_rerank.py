"""Reranking over a real socket, in the shapes that other servers' clients send."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from peltier_client import Client, InvalidInput

from tests.server.conftest import Listening

MakeArtifact = Callable[..., bytes]
QUERY = "is the film good ?"
DOCUMENTS = ["bad", "a good film", "the plot was not very good , and the actor is dull", "a good film"]


@pytest.fixture(scope="module")
def listening(listen, bert, bert_directory, make_artifact):
    with listen(backbone=str(bert_directory)) as started:
        started.upload(make_artifact(bert, "lora", task_type="ranking", inputs="pair", name="rank"))
        started.upload(make_artifact(bert, "lora", inputs="pair", name="pairs"))
        started.upload(make_artifact(bert, "lora", task_type="multi-vector-embedding", name="vectors", max_length=24))
        yield started


def predicted(listening: Listening, **parameters: object) -> list[float]:
    pairs = [[QUERY, document] for document in DOCUMENTS]
    return [one["score"] for one in listening.predictions("rank", pairs, **parameters)]


def test_documents_are_sorted_by_their_predictions(listening: Listening) -> None:
    scores = predicted(listening)
    answer = listening.post("/v1/rerank", model="rank", query=QUERY, documents=DOCUMENTS).json()
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    assert order.index(1) < order.index(3)
    assert [one["index"] for one in answer["results"]] == order
    assert [one["relevance_score"] for one in answer["results"]] == [scores[index] for index in order]
    assert (answer["model"], answer["usage"]["truncated_inputs"]) == ("rank", 0)
    assert answer["usage"]["total_tokens"] > 0


def test_documents_may_be_objects_and_come_back(listening: Listening) -> None:
    objects = [{"text": document} for document in DOCUMENTS]
    body = {"model": "rank@1", "query": QUERY, "documents": objects, "top_n": 2, "return_documents": True}
    results = listening.post("/v1/rerank", **body).json()["results"]
    assert len(results) == 2
    assert all(one["document"]["text"] == DOCUMENTS[one["index"]] for one in results)


def test_the_shape_of_text_embeddings_inference(listening: Listening) -> None:
    """A list of indices and scores; raw scores are the outputs whose sigmoid the scores are."""
    body = {"adapter_id": "rank", "query": QUERY, "texts": DOCUMENTS}
    ranked = listening.post("/rerank", **body, return_text=True).json()
    raw = {one["index"]: one["score"] for one in listening.post("/rerank", **body, raw_scores=True).json()}
    assert [one["text"] for one in ranked] == [DOCUMENTS[one["index"]] for one in ranked]
    for one in ranked:
        assert one["score"] == pytest.approx(1 / (1 + math.exp(-raw[one["index"]])))
    assert raw == pytest.approx(dict(enumerate(predicted(listening, raw_scores=True))))


def similarities(listening: Listening) -> list[float]:
    """Of the query with each document: the mean over its vectors of their largest cosine with one of the document's,
    from the vectors of the native route."""
    requests = [{"task": "vectors", "input": text} for text in (QUERY, *DOCUMENTS)]
    requests.append({"task": "rank", "input": [QUERY, "bad"]})
    *found, ranked = listening.post("/v1/predict", requests=requests).json()["results"]
    assert ranked["predictions"][0]["score"] == pytest.approx(predicted(listening)[0])
    query, *documents = (np.array(one["predictions"][0]["vectors"]) for one in found)
    assert np.linalg.norm(query, axis=1) == pytest.approx(1)
    return [float((query @ document.T).max(1).mean()) for document in documents]


def test_vectors_of_tokens_sort_documents(listening: Listening) -> None:
    """By MaxSim of the vectors that a prediction has, in both shapes; raw scores are sums over the query's tokens."""
    scores = similarities(listening)
    answer = listening.post("/v1/rerank", model="vectors", query=QUERY, documents=DOCUMENTS).json()
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    assert order.index(1) < order.index(3)
    assert [one["index"] for one in answer["results"]] == order
    assert [one["relevance_score"] for one in answer["results"]] == pytest.approx(sorted(scores, reverse=True))
    body = {"adapter_id": "vectors", "query": QUERY, "texts": DOCUMENTS, "raw_scores": True}
    raw = {one["index"]: one["score"] for one in listening.post("/rerank", **body).json()}
    num_tokens = listening.post("/v1/tasks/vectors/predict", inputs=QUERY).json()["usage"]["tokens"]
    assert raw == pytest.approx({index: num_tokens * score for index, score in enumerate(scores)}, rel=1e-5)
    assert answer["usage"]["total_tokens"] == num_tokens + sum(
        listening.post("/v1/tasks/vectors/predict", inputs=document).json()["usage"]["tokens"] for document in DOCUMENTS
    )


def test_a_query_that_is_too_long_is_named(listening: Listening) -> None:
    long = "good " * 30
    body = {"model": "vectors", "truncate": False}
    for query, documents, named in ((long, DOCUMENTS, "query: "), (QUERY, ["bad", long], "document 1: ")):
        answer = listening.post("/v1/rerank", **body, query=query, documents=documents)
        assert answer.status_code == 422
        assert answer.json()["error"]["message"].startswith(named)


def test_fields_of_other_clients_change_nothing(listening: Listening) -> None:
    """Those of Cohere's, Jina's and text-embeddings-inference's clients, where the answer stays the same."""
    body = {"model": "rank", "query": QUERY, "documents": DOCUMENTS}
    plain = listening.post("/v1/rerank", **body).json()["results"]
    for extra in (
        {"max_tokens_per_doc": 4096, "return_embeddings": False, "truncation": True},
        {"max_chunks_per_doc": 10, "rank_fields": ["text"], "top_n": None, "truncate": None},
    ):
        assert listening.post("/v1/rerank", **body, **extra).json()["results"] == plain
    texts = {"adapter_id": "rank", "query": QUERY, "texts": DOCUMENTS}
    ranked = listening.post("/rerank", **texts).json()
    assert listening.post("/rerank", **texts, truncation_direction="Right", truncate=None).json() == ranked
    refused = listening.post("/rerank", **texts, truncation_direction="Left").json()["error"]["message"]
    assert refused == "truncation_direction is 'Left': must be 'right': this server truncates texts at their ends"


def test_the_client_ranks(listening: Listening) -> None:
    with Client(listening.url) as client:
        found = client.rerank("rank", QUERY, DOCUMENTS, top_n=3)
        assert len(found) == 3
        assert found[0].relevance_score == max(predicted(listening))
        with pytest.raises(InvalidInput, match="task 'pairs' is of type classification; only ranking and multi-vec"):
            client.rerank("pairs", QUERY, DOCUMENTS)


def test_repeated_documents_count_in_the_answer(listen, bert_directory, bert, make_artifact):
    """In JSON; those that the answer does not repeat do not count."""
    documents = ["good \n" * 400, "bad", "dull \n" * 400]
    with listen(backbone=str(bert_directory), max_answer_bytes=5000) as other:
        other.upload(make_artifact(bert, "lora", task_type="ranking", inputs="pair", name="rank"))
        body = {"model": "rank", "query": QUERY, "documents": documents}
        assert other.post("/v1/rerank", **body).status_code == 200
        assert other.post("/v1/rerank", **body, return_documents=True, top_n=1).status_code == 200
        answers = [
            other.post("/v1/rerank", **body, return_documents=True),
            other.post("/rerank", adapter_id="rank", query=QUERY, texts=documents, return_text=True),
        ]
        for answer in answers:
            assert answer.status_code == 422
            assert answer.json()["error"]["message"] == (
                "the answer has more than 5000 bytes, the most that max_answer_bytes of this server allows"
            )


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (
            {"model": "pairs", "query": "a", "documents": ["b"]},
            422,
            "only ranking and multi-vector-embedding tasks rank",
        ),
        ({"model": "none", "query": "a", "documents": ["b"]}, 404, "none"),
        ({"model": "rank", "query": "a", "documents": []}, 422, "must be a non-empty list of texts"),
        ({"model": "rank", "query": "a", "documents": ["b"], "top_n": 0}, 422, "top_n"),
        ({"model": "rank", "query": "a", "documents": ["b", ""]}, 422, "document 1: an input text is empty"),
        ({"model": "rank", "query": "a", "documents": [7]}, 422, "must be a non-empty list of texts or of"),
        ({"model": "rank", "query": "a", "documents": ["b " * 200], "truncate": False}, 422, "at most 64"),
        ({"model": "rank", "query": "a", "documents": ["b", "", ""]}, 422, "(and 1 more document)"),
        ({"model": "rank", "query": "a", "documents": ["b " * 200], "truncation": False}, 422, "at most 64"),
        ({"model": "rank", "query": "a", "documents": ["b"], "max_tokens_per_doc": 63}, 422, "it must be at least 64"),
        ({"model": "rank", "query": "a", "documents": ["b"], "rank_fields": ["title"]}, 422, 'must be ["text"]'),
        ({"model": "rank", "query": "a", "documents": ["b"], "return_embeddings": True}, 422, "answers no embeddings"),
        ({"model": "rank", "query": "a", "documents": ["b"], "truncate": True, "truncation": False}, 422, "the same"),
    ],
)
def test_bad_requests_are_one_sentence(body: dict[str, object], status: int, words: str, listening: Listening) -> None:
    answer = listening.post("/v1/rerank", **body)
    assert answer.status_code == status
    assert words in str(answer.json()["error"])
