"""Texts of which nothing can be seen, by every protocol."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from peltier_backbone.backbone import Backbone
from peltier_server.inference.prediction_request import add_prompt

from tests.server.conftest import Listen, Listening

BLANK = "\u200b\u00ad\ufeff"
SENTENCE = "an input text is empty; every text must have at least one visible character"
_OF_INVOCATIONS = {"x-amzn-sagemaker-custom-attributes": "task=film"}
MakeArtifact = Callable[..., bytes]


@pytest.fixture(scope="module")
def encoder(listen: Listen, bert: Backbone, make_artifact: MakeArtifact) -> Iterator[Listening]:
    """Tasks of single texts and of pairs, of labels, vectors, tokens and spans."""
    made: dict[str, dict[str, Any]] = {
        "film": {},
        "nli": {"inputs": "pair"},
        "rank": {"task_type": "ranking", "inputs": "pair"},
        "vectors": {"task_type": "multi-vector-embedding"},
        "sparse": {"task_type": "sparse-embedding"},
        "names": {"task_type": "token-classification"},
    }
    with listen() as started:
        for name, given in made.items():
            started.upload(make_artifact(bert, "lora", name=name, **given))
        yield started


@pytest.fixture(scope="module")
def writer(listen: Listen, t5: Backbone, t5_directory: Path, make_artifact: MakeArtifact) -> Iterator[Listening]:
    """A task that writes texts."""
    with listen(backbone=t5_directory) as started:
        started.upload(make_artifact(t5, "lora", task_type="text2text", name="e2e"))
        yield started


def tensor(name: str, text: str) -> dict[str, object]:
    return {"name": name, "shape": [1], "datatype": "BYTES", "data": [text]}


@pytest.mark.parametrize("blank", [BLANK, "\u3164", " "])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/tasks/film/predict", {"inputs": "BLANK"}),
        ("/v1/tasks/film/predict", {"inputs": ["a good film", "BLANK"]}),
        ("/v1/tasks/names/predict", {"inputs": ["BLANK"], "parameters": {"stride": 2}}),
        ("/v1/tasks/nli/predict", {"inputs": [["BLANK", "bad"]]}),
        ("/v1/tasks/nli/predict", {"inputs": [["bad", "BLANK"]]}),
        ("/invocations", {"inputs": "BLANK"}),
        ("/v1/embeddings", {"model": "_backbone", "input": ["BLANK"]}),
        ("/v1/embeddings", {"model": "sparse", "input": "BLANK"}),
        ("/embed", {"inputs": "BLANK"}),
        ("/embed_sparse", {"inputs": "BLANK", "adapter_id": "sparse"}),
        ("/similarity", {"inputs": {"source_sentence": "BLANK", "sentences": ["bad"]}}),
        ("/similarity", {"inputs": {"source_sentence": "bad", "sentences": ["BLANK"]}}),
        ("/predict", {"inputs": "BLANK", "adapter_id": "film"}),
        ("/classify", {"input": "BLANK", "model": "film"}),
        ("/pooling", {"input": "BLANK", "model": "_backbone"}),
        ("/rerank", {"adapter_id": "rank", "query": "BLANK", "texts": ["bad"]}),
        ("/rerank", {"adapter_id": "rank", "query": "bad", "texts": ["bad", "BLANK"]}),
        ("/rerank", {"adapter_id": "vectors", "query": "BLANK", "texts": ["bad"]}),
        ("/v1/rerank", {"model": "vectors", "query": "bad", "documents": ["BLANK"]}),
        ("/v2/models/film/infer", {"inputs": [tensor("text", "BLANK")]}),
        ("/v2/models/nli/infer", {"inputs": [tensor("text", "bad"), tensor("text_pair", "BLANK")]}),
    ],
)
def test_no_protocol_answers_a_text_of_invisible_characters(path, body, blank, encoder):
    """As the first text or the second, alone or beside others: what an empty text reads."""
    answer = httpx2.post(f"{encoder.url}{path}", json=_filled(body, blank), headers=_OF_INVOCATIONS, timeout=30)
    assert (answer.status_code in (400, 422), SENTENCE in answer.text) == (True, True), answer.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/tasks/e2e/predict", {"inputs": "BLANK"}),
        ("/v1/tasks/e2e/predict", {"inputs": "BLANK", "stream": True}),
        ("/v1/completions", {"model": "e2e", "prompt": "BLANK"}),
        ("/v1/completions", {"model": "e2e", "prompt": "BLANK", "stream": True}),
    ],
)
def test_no_text_is_written_for_invisible_characters(path: str, body: dict[str, object], writer: Listening) -> None:
    answer = httpx2.post(f"{writer.url}{path}", json=_filled(body, BLANK), timeout=30)
    assert SENTENCE in answer.text, answer.text


def test_a_prompt_makes_no_text_of_invisible_characters() -> None:
    """They stay without it, and are refused."""
    texts = ["", " ", BLANK, "a"]
    assert add_prompt({"query": "query: "}, "query", texts) == ["", " ", BLANK, "query: a"]


def _filled(value: Any, blank: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(one, blank) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, blank) for one in value]
    return blank if value == "BLANK" else value
