"""Embeddings over HTTP: OpenAI's route, called by OpenAI's client over a real socket, and the native routes."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import httpx2
import numpy as np
import openai
import pytest
import torch
from peltier_adapters.answers import embeddings
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Banks
from peltier_backbone.backbone import Backbone
from peltier_client import Client, PeltierError
from peltier_client.protocol.predict import PredictResponse
from torch.nn import functional as F

from tests.server.conftest import Listen, Listening

TEXTS = ["a good film", "the plot was not very good", "bad"]


@pytest.fixture(scope="module")
def artifacts(bert: Backbone, make_artifact: Callable[..., bytes]) -> dict[str, bytes]:
    return {
        "unit": make_artifact(bert, "lora", task_type="embedding", normalized=True),
        "raw": make_artifact(bert, "compacter", task_type="embedding", overrides={"pooling": "max"}),
        "sparse": make_artifact(bert, "lora", task_type="sparse-embedding"),
        "film": make_artifact(bert, "unipelt-apl"),
    }


@pytest.fixture(scope="module")
def listening(listen: Listen, artifacts: dict[str, bytes]) -> Iterator[Listening]:
    with listen() as started:
        with Client(started.url) as own:
            for name, data in artifacts.items():
                own.upload(data, name=name)
        yield started


@pytest.fixture
def client(listening: Listening) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{listening.url}/v1", api_key="none", max_retries=0) as opened:
        yield opened


def computed(bert: Backbone, data: bytes) -> torch.Tensor:
    resident = Banks(bert).add(read_artifact(data, bert))
    return torch.stack([forward(bert, [Row(bert.tokenizer.encode(text), resident)])[0].logits for text in TEXTS])


def vectors(answer: Any) -> torch.Tensor:
    return torch.tensor([one.embedding for one in answer.data])


@pytest.mark.parametrize("encoding", [{}, {"encoding_format": "float"}])
def test_sparse_embeddings_are_indices_and_values(encoding, client, listening):
    """Those of a prediction in the same batch as a dense one, in each format that the client asks for."""
    requests = [{"task": task, "input": TEXTS[0]} for task in ("sparse", "unit")]
    found = listening.post("/v1/predict", requests=requests).json()["results"]
    terms = found[0]["predictions"][0]["terms"]
    answer: Any = client.embeddings.create(model="sparse", input=TEXTS[0], **encoding).data[0].embedding
    assert (answer["indices"], answer["values"]) == (
        [term["index"] for term in terms], pytest.approx([term["weight"] for term in terms], abs=1e-6)
    )  # fmt: skip
    assert len(found[1]["predictions"][0]["embedding"]) == 48


def test_the_client_reads_the_embeddings(client: openai.OpenAI, bert: Backbone, artifacts: dict[str, bytes]) -> None:
    expected = F.normalize(computed(bert, artifacts["unit"]), dim=-1)
    packed = client.embeddings.create(model="unit", input=TEXTS)
    plain = client.embeddings.create(model="unit@1", input=TEXTS, encoding_format="float", user="me")
    torch.testing.assert_close(vectors(packed), expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(vectors(plain), expected, atol=1e-6, rtol=1e-5)
    assert (packed.object, packed.model, plain.model) == ("list", "unit", "unit@1")
    assert [(one.object, one.index) for one in packed.data] == [("embedding", n) for n in range(3)]
    tokens = sum(len(bert.tokenizer.encode(text)) for text in TEXTS)
    assert packed.usage.prompt_tokens == packed.usage.total_tokens == tokens


def test_dimensions_truncate(client: openai.OpenAI, bert: Backbone, artifacts: dict[str, bytes]) -> None:
    for model, finish in (("unit", lambda x: F.normalize(x, dim=-1)), ("raw", lambda x: x)):
        answer = client.embeddings.create(model=model, input=TEXTS, dimensions=16)
        expected = finish(computed(bert, artifacts[model])[:, :16])
        torch.testing.assert_close(vectors(answer), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("precision", get_args(embeddings.Precision))
def test_integers_are_the_quantized_embedding(client, listening, precision):
    """Of the truncated vector of unit length, in OpenAI's shape and by the client of the server."""
    plain = vectors(client.embeddings.create(model="unit", input=TEXTS, dimensions=20))
    expected = [embeddings.quantize(one, precision) for one in plain]
    found = client.embeddings.create(model="unit", input=TEXTS, dimensions=20, encoding_format=precision)  # type: ignore[arg-type]
    assert [one.embedding for one in found.data] == expected
    with Client(listening.url) as own:
        assert own.embed("unit", TEXTS, dimensions=20, precision=precision) == expected
        (one,) = own.predict("unit", TEXTS[0], dimensions=20, precision=precision)
        assert one.embedding is not None
        assert {type(value) for value in one.embedding} == {int}


def test_prompts_come_before_texts(with_prompts: Listening) -> None:
    """Those that the checkpoint names; an unknown one is answered with the known ones."""
    with Client(with_prompts.url) as own:
        expected = own.embed("_backbone", "a plot good")
        assert own.embed("_backbone", ["good"], prompt_name="query") == expected
        assert own.embed("_backbone", "good", prompt_name="document") == own.embed("_backbone", "good")
    with openai.OpenAI(base_url=f"{with_prompts.url}/v1", api_key="none") as theirs:
        asked = {"prompt_name": "query"}
        found = theirs.embeddings.create(model="_backbone", input="good", extra_body=asked, encoding_format="float")
        assert [one.embedding for one in found.data] == expected
    texts = {"source_sentence": "a plot good", "sentences": ["good"]}
    (alike,) = with_prompts.post("/similarity", inputs=texts).json()
    named = {**texts, "source_sentence": "good"}
    (same,) = with_prompts.post("/similarity", inputs=named, parameters={"prompt_name": "query"}).json()
    assert alike < same == pytest.approx(1)
    for path, body in (("/embed", {"inputs": "good"}), ("/v1/embeddings", {"input": "good", "model": "_backbone"})):
        answer = with_prompts.post(path, **body, prompt_name="title")
        assert answer.json()["error"]["message"] == "prompt_name 'title' is unknown; it is one of document, query"


_TENSOR = {"name": "text", "shape": [1], "datatype": "BYTES"}
# The bodies of calls with a text and a prompt.
BODIES: dict[str, Callable[[str, dict[str, str]], dict[str, Any]]] = {
    "/embed": lambda text, prompt: {"inputs": text, **prompt},
    "/embed_sparse": lambda text, prompt: {"inputs": text, "adapter_id": "sparse", **prompt},
    "/v1/tasks/sparse/predict": lambda text, prompt: {"inputs": text, "parameters": prompt},
    "/v1/predict": lambda text, prompt: {"tasks": ["_backbone", "sparse"], "input": text, "parameters": prompt},
    "/v2/models/sparse/infer": lambda text, prompt: {"inputs": [{**_TENSOR, "data": [text]}], "parameters": prompt},
}


@pytest.mark.parametrize("path", BODIES)
def test_prompts_come_before_texts_on_other_routes(path: str, with_prompts: Listening) -> None:
    """The answer is that of the text with the prompt before it."""

    def ask(text: str, **prompt: str) -> Any:
        answer = with_prompts.post(path, **BODIES[path](text, prompt)).json()
        if "results" in answer:
            return [one["predictions"] for one in answer["results"]]
        # Other parts of an answer are times and counts, which differ.
        for name in ("predictions", "outputs"):
            if name in answer:
                return answer[name]
        return answer

    found = ask("good", prompt_name="query")
    assert found == ask("a plot good")
    assert found != ask("good")


@pytest.fixture(scope="module")
def with_prompts(listen, bert_directory, artifacts, tmp_path_factory):
    directory = tmp_path_factory.mktemp("with_prompts")
    shutil.copytree(bert_directory, directory, dirs_exist_ok=True)
    prompts = {"prompts": {"query": "a plot ", "document": ""}}
    (directory / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    with listen(backbone=str(directory)) as other, Client(other.url) as own:
        own.upload(artifacts["sparse"], name="sparse")
        yield other


def test_the_default_prompt_is_for_the_backbone(listen, bert_directory, artifacts, tmp_path):
    """Adapters are trained on texts without a prompt."""
    shutil.copytree(bert_directory, tmp_path, dirs_exist_ok=True)
    prompts = {"prompts": {"query": "a plot ", "document": ""}, "default_prompt_name": "query"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    with listen(backbone=str(tmp_path)) as other, Client(other.url) as own:
        own.upload(artifacts["unit"], name="unit")
        assert own.embed("_backbone", "good") == own.embed("_backbone", "a plot good", prompt_name="document")
        assert own.embed("unit", "good") == own.embed("unit", "good", prompt_name="document")
        # The two read texts alike but for the prompt.
        both = own.predict_tasks(["_backbone", "unit"], "good")
        found = [None if isinstance(one, PeltierError) else one[0].embedding for one in both.values()]
        assert found == [*own.embed("_backbone", ["good"]), *own.embed("unit", ["good"])]


def test_the_native_route_answers_the_same(listening: Listening, client: openai.OpenAI) -> None:
    """As a prediction; `raw_scores` are not normalized."""
    answer = listening.post("/v1/tasks/unit/predict", inputs=TEXTS, parameters={"dimensions": 8})
    body = PredictResponse.model_validate_json(answer.content)
    assert body.model_dump_json().encode() == answer.content
    found = torch.tensor([one.embedding for one in body.predictions])
    torch.testing.assert_close(found, vectors(client.embeddings.create(model="unit", input=TEXTS, dimensions=8)))
    raw = listening.predictions("unit", TEXTS, dimensions=8, raw_scores=True)
    longer = torch.tensor([one["embedding"] for one in raw])
    assert (longer.norm(dim=-1) - 1).abs().min() > 0.1
    torch.testing.assert_close(F.normalize(longer, dim=-1), found)


def test_the_backbone_is_a_model(client: openai.OpenAI, listening: Listening, bert: Backbone) -> None:
    """The mean over tokens, where the checkpoint names no pooling; on every route, beside adapters, and in the list."""
    states = [bert.bert(bert.pack([bert.tokenizer.encode(text)])).mean(0) for text in TEXTS]
    expected = F.normalize(torch.stack(states), dim=-1)
    torch.testing.assert_close(vectors(client.embeddings.create(model="_backbone", input=TEXTS)), expected)
    items = [{"task": task, "input": TEXTS[0]} for task in ("film", "_backbone", "unit")]
    results = listening.post("/v1/predict", requests=items).json()["results"]
    assert torch.tensor(results[1]["predictions"][0]["embedding"]).allclose(expected[0], atol=1e-6)
    assert results[1]["adapter"] == {
        "tenant": "_peltier", "name": "_backbone", "version": 1, "digest": bert.fingerprint, "preset": "backbone",
    }  # fmt: skip
    assert [model.id for model in client.models.list()] == ["_backbone", "film", "raw", "sparse", "unit"]
    assert client.models.retrieve("_backbone").owned_by == "_peltier"


def test_pages_of_models_begin_with_the_backbone(listening: Listening) -> None:
    """Also where the page after it has a name that sorts before it."""

    def page(**query: object) -> dict[str, Any]:
        return httpx2.get(f"{listening.url}/v1/models", params=query, timeout=30).json()

    assert [one["id"] for one in page(limit=1)["data"]] == ["_backbone"]
    assert [one["id"] for one in page(limit=2, after="_backbone")["data"]] == ["film", "raw"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"input": [1, 2]}, "input: it must be a text or a non-empty list of texts, in valid Unicode; token ids are "),
        ({"input": [[1, 2]]}, "input: it must be a text or a non-empty list of texts"),
        ({"input": []}, "input: it must be a text or a non-empty list of texts"),
        ({"input": ""}, "an input text is empty"),
        ({"dimensions": 49}, "dimensions is 49: the embeddings of this task have 48 values"),
        ({"dimensions": 0}, "dimensions is 0: "),
        ({"model": "film"}, "model 'film' is a classification task, which embeds no texts"),
        ({"model": "_backbone@2"}, "task '_backbone@2' is not allowed: _backbone has no tenant, version or alias"),
        ({"input": "good " * 80}, "the input has 82 tokens; this task takes at most 64"),
        ({"encoding_format": "int4"}, "encoding_format is "),
        ({"encoding_format": "int8", "model": "raw"}, "int8 is for embeddings of unit length, and these may have any"),
        ({"prompt_name": "query"}, "prompt_name 'query' is unknown; this server's backbone has no prompts"),
    ],
)
def test_bad_requests_are_answered_with_one_sentence(listening, asked, message):
    answer = listening.post("/v1/embeddings", **{"model": "unit", "input": "bad", **asked})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert error["message"].startswith(message)


def test_a_format_that_the_task_has_not_is_named_as_it_was_asked(listening: Listening) -> None:
    """By OpenAI's name of the field, not that of the parameter of a prediction."""
    error = listening.post("/v1/embeddings", model="sparse", input="bad", encoding_format="int8").json()["error"]
    assert error["message"].startswith("encoding_format is for tasks of type embedding; this task's type is sparse")
    assert error["param"] == "encoding_format"


def test_long_texts_are_truncated_where_that_is_wanted(listening: Listening) -> None:
    answer = listening.post("/v1/embeddings", model="unit", input=["good " * 80, "bad"], truncate=True)
    assert (answer.status_code, answer.headers["x-truncated-inputs"]) == (200, "1")


def test_parameters_of_other_tasks_are_refused(listening: Listening) -> None:
    wrong = {"film": {"dimensions": 2}, "unit": {"top_k": 2}}
    found = [
        listening.post(f"/v1/tasks/{task}/predict", inputs="bad", parameters=parameters).json()["error"]["message"]
        for task, parameters in wrong.items()
    ]
    assert found == [
        "dimensions is for tasks of type embedding; this task's type is classification",
        "top_k is not for tasks of type embedding",
    ]


def test_answers_are_bounded(listen: Listen) -> None:
    with listen(max_answer_bytes=300_000) as other:
        body = {"model": "_backbone", "input": TEXTS * 80}
        answer = other.post("/v1/embeddings", **body)
        assert answer.json()["error"]["message"].startswith(
            "the answer to 240 inputs with 48 dimensions each may have 323584 bytes, and 300000 of at most 300000 are "
            "left for it: send fewer inputs in a request, or set a smaller number of dimensions"
        )
        many = other.post("/v1/embeddings", **body, dimensions=24).json()
        few = other.post("/v1/embeddings", model="_backbone", input=TEXTS, dimensions=24)
        found = np.array([one["embedding"] for one in many["data"]])
        np.testing.assert_allclose(found[:3], [one["embedding"] for one in few.json()["data"]], atol=1e-6)


def test_base64_is_counted_at_its_own_size(listen: Listen) -> None:
    """Fewer than a quarter of the bytes of numbers, and never less than the answer has."""
    asked = {"model": "_backbone", "input": TEXTS * 80, "encoding_format": "base64"}
    with listen(max_answer_bytes=120_000) as other:
        found = other.post("/v1/embeddings", **asked)
        assert (found.status_code, len(found.json()["data"])) == (200, 240)
        assert len(found.content) < 1024 + 240 * (192 + 256)
        plain = other.post("/v1/embeddings", **asked | {"encoding_format": "float"})
        assert plain.status_code == 400
        more = other.post("/v1/embeddings", **asked | {"input": TEXTS * 100})
        assert more.json()["error"]["message"].startswith(
            "the answer to 300 inputs with 48 dimensions each may have 13"
        )


def test_a_t5_embeds_nothing(listen: Listen, t5_directory: Path) -> None:
    with listen(backbone=str(t5_directory)) as other:
        answer = other.post("/v1/embeddings", model="_backbone", input="bad")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
        assert httpx2.get(f"{other.url}/v1/models", timeout=30).json()["data"] == []
