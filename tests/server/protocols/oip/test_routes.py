"""The Open Inference Protocol over a real socket, by bare requests and by Triton's client."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import httpx2
import numpy as np
import pytest
import tritonclient.http as triton
from peltier_backbone.backbone import Backbone
from peltier_client.errors import InferenceFailed
from peltier_server.protocols.oip.inputs import LENGTH_HEADER
from pydantic_core import from_json, to_json
from tritonclient.utils import InferenceServerException

from tests.server.conftest import Listen, Listening

TEXTS = ["a good film", "the plot was not very good", "bad"]
TASKS = {
    "film": ("compacter", {}),
    "topics": ("lora", {"task_type": "multilabel"}),
    "stars": ("lora", {"task_type": "regression", "labels": ("stars",)}),
    "vectors": ("lora", {"task_type": "embedding", "labels": ()}),
    "names": ("lora", {"task_type": "token-classification"}),
    "nli": ("lora", {"inputs": "pair"}),
}


@pytest.fixture(scope="module")
def listening(listen: Listen, bert: Backbone, make_artifact: Callable[..., bytes]) -> Iterator[Listening]:
    """One task of each type that has single texts, and one of pairs; film has two versions."""
    with listen() as started:
        for name, (preset, given) in TASKS.items():
            started.upload(make_artifact(bert, preset, name=name, **given))
        started.upload(make_artifact(bert, "lora", name="film"))
        yield started


def get(listening: Listening, path: str) -> httpx2.Response:
    return httpx2.get(f"{listening.url}/v2{path}", timeout=60)


def tensor(texts: list[str], name: str = "text") -> dict[str, Any]:
    return {"name": name, "shape": [len(texts)], "datatype": "BYTES", "data": texts}


def infer(listening: Listening, model: str, **body: object) -> httpx2.Response:
    return httpx2.post(
        f"{listening.url}/v2/models/{model}/infer", content=to_json({"inputs": [tensor(TEXTS)], **body}), timeout=60
    )


def outputs(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return {one["name"]: one["data"] for one in answer.json()["outputs"]}


def predicted(listening: Listening, task: str, **parameters: object) -> list[dict[str, Any]]:
    return listening.predictions(task, TEXTS, **parameters)


def test_the_server_says_what_it_is(listening: Listening) -> None:
    assert get(listening, "/health/live").json() == {"live": True}
    assert get(listening, "/health/ready").json() == {"ready": True}
    about = get(listening, "").json()
    assert (about["name"], about["extensions"]) == ("peltier", ["binary_tensor_data", "model_repository"])


def test_a_model_says_its_versions_and_tensors(listening: Listening) -> None:
    about = get(listening, "/models/film").json()
    scores = {
        "name": "scores",
        "datatype": "FP32",
        "shape": [-1, 2],
        "parameters": {"labels": ["negative", "positive"]},
    }
    assert (about["name"], about["versions"], about["platform"]) == ("film", ["1", "2"], "peltier")
    assert about["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert [one["name"] for one in about["outputs"]] == ["label", "score", "scores"]
    assert about["outputs"][2] == scores
    assert get(listening, "/models/film/versions/1").json()["versions"] == ["1"]
    assert get(listening, "/models/film/versions/2/ready").json() == {"name": "film", "ready": True}


def test_classifications_are_those_of_the_native_route(listening: Listening) -> None:
    """Labels, their scores, and the scores of all labels in row-major order, by the version of the path."""
    answer = infer(listening, "film/versions/1", id="first", parameters={"raw_scores": True})
    found, right = outputs(answer), predicted(listening, "film@1", raw_scores=True)
    assert {**answer.json(), "outputs": None} == {
        "model_name": "film", "model_version": "1", "id": "first", "outputs": None,
    }  # fmt: skip
    assert found["label"] == [one["label"] for one in right]
    assert found["score"] == [one["score"] for one in right]
    assert found["scores"] == [value for one in right for value in one["scores"].values()]


def test_other_types_have_tensors_too(listening: Listening) -> None:
    assert outputs(infer(listening, "stars"))["value"] == [one["value"] for one in predicted(listening, "stars")]
    vectors = infer(listening, "vectors", parameters={"dimensions": 5})
    assert vectors.json()["outputs"][0]["shape"] == [3, 5]
    right = [value for one in predicted(listening, "vectors", dimensions=5) for value in one["embedding"]]
    assert outputs(vectors)["embedding"] == right
    for model, name in [("topics", "labels"), ("names", "entities")]:
        found = [from_json(one) for one in outputs(infer(listening, model))[name]]
        assert found == [one[name] for one in predicted(listening, model)]


def test_tensors_may_follow_the_json_as_bytes(listening: Listening) -> None:
    elements = b"".join(len(text.encode()).to_bytes(4, "little") + text.encode() for text in TEXTS)
    given = {"name": "text", "shape": [3, 1], "datatype": "BYTES", "parameters": {"binary_data_size": len(elements)}}
    asked = [{"name": "scores", "parameters": {"binary_data": True}}, {"name": "label"}, {"name": "score"}]
    head = to_json({"inputs": [given], "outputs": asked})
    answer = httpx2.post(
        f"{listening.url}/v2/models/film/infer", content=head + elements, headers={LENGTH_HEADER: str(len(head))}
    )
    length = int(answer.headers[LENGTH_HEADER])
    found = {one["name"]: one for one in from_json(answer.content[:length])["outputs"]}
    right = predicted(listening, "film")
    scores = np.frombuffer(answer.content[length:], "<f4").reshape(found["scores"]["shape"])
    assert found["scores"]["parameters"] == {"binary_data_size": 24}
    np.testing.assert_array_equal(scores, np.float32([list(one["scores"].values()) for one in right]))
    assert found["label"]["data"] == [one["label"] for one in right]


def test_many_rows_are_written_in_a_thread(listening: Listening) -> None:
    given = {"inputs": [tensor(TEXTS * 80)]}
    plain = outputs(infer(listening, "vectors", **given))["embedding"]
    answer = infer(listening, "vectors", **given, parameters={"binary_data_output": True})
    length = int(answer.headers[LENGTH_HEADER])
    assert len(plain) == 240 * 48
    np.testing.assert_array_equal(np.frombuffer(answer.content[length:], "<f4"), np.float32(plain))


def test_the_index_names_every_version(listening: Listening) -> None:
    answer = httpx2.post(f"{listening.url}/v2/repository/index", content=b"{}")
    named = [(one["name"], one["version"], one["state"]) for one in answer.json()]
    assert named == sorted((name, str(n), "READY") for name in TASKS for n in ((1, 2) if name == "film" else (1,)))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"inputs": [tensor(TEXTS, "args")]}, "the input tensors are args: this task has text"),
        (
            {"inputs": [tensor(TEXTS) | {"shape": [2]}]},
            "input text: its shape is [2], and it has more texts: the shape",
        ),
        ({"inputs": [tensor(TEXTS) | {"datatype": "FP32"}]}, "input text: its datatype is 'FP32': texts are BYTES"),
        ({"inputs": [tensor([])]}, "the input tensors are empty: they must have at least one text"),
        ({"inputs": [tensor(TEXTS) | {"data": ["a", 1, "b"]}]}, "input text: element 1 must be a text"),
        ({"inputs": [tensor(TEXTS) | {"data": None}]}, "input text: must have either data or binary_data_size"),
        ({"outputs": [{"name": "logits"}]}, "output 'logits' does not exist: this task has label, score, scores"),
        ({"parameters": {"top_k": 1}}, "parameter 'top_k' is unknown here; known are binary_data_output, timeout, "),
        ({"parameters": {"priority": 99}}, "parameter priority is 99: input should be less than or equal to 10"),
        ({"model_name": "nli"}, "model_name is 'nli'; the path names 'film'"),
        ({"inputs": []}, "inputs: list should have at least 1 item after validation, not 0"),
    ],
)
def test_bad_requests_are_one_sentence(body: dict[str, Any], message: str, listening: Listening) -> None:
    answer = infer(listening, "film", **body)
    assert (answer.status_code, answer.json()["error"][: len(message)]) == (400, message)


def test_a_draining_server_says_so_before_it_judges_the_model_of_a_body(listening: Listening) -> None:
    with patch.object(listening.app.state.lifecycle, "draining", True):
        assert infer(listening, "film", model_name="nli").status_code == 503


def test_the_body_may_repeat_the_model(listening: Listening) -> None:
    assert infer(listening, "film", model_name="film").status_code == 200


@pytest.mark.parametrize(
    ("length", "tail", "message"),
    [
        ("x", b"", "inference-header-content-length is 'x': must be the number of bytes of the JSON in the body"),
        ("all", b"", "input text: binary_data_size is 9, and 0 bytes follow in the body"),
        ("all", b"\x05\0\0\0a good", "the body has 1 bytes after its last tensor"),
        ("all", b"\x09\0\0\0a goo", "input text: element 0 is longer than the tensor's bytes"),
        ("all", b"\x05\0\0\0a \xffod", "input text: element 0 is not UTF-8"),
    ],
)
def test_bad_bytes_are_one_sentence(length: str, tail: bytes, message: str, listening: Listening) -> None:
    given = {"name": "text", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 9}}
    head = to_json({"inputs": [given]})
    headers = {LENGTH_HEADER: str(len(head)) if length == "all" else length}
    answer = httpx2.post(f"{listening.url}/v2/models/film/infer", content=head + tail, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (400, message)


def test_no_tensor_reaches_beyond_the_bytes(listening: Listening) -> None:
    given = [
        {"name": name, "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": size}}
        for name, size in (("text", 5), ("text_pair", 7))
    ]
    head = to_json({"inputs": given})
    content, headers = head + b"\x01\0\0\0a\x03\0\0\0b", {LENGTH_HEADER: str(len(head))}
    answer = httpx2.post(f"{listening.url}/v2/models/nli/infer", content=content, headers=headers)
    message = "input text_pair: binary_data_size is 7, and 5 bytes follow in the body"
    assert (answer.status_code, answer.json()["error"]) == (400, message)


@pytest.mark.parametrize("path", ["/models/none", "/models/none/ready", "/models/film/versions/9"])
def test_unknown_models_are_not_found(path: str, listening: Listening) -> None:
    answer = get(listening, path)
    assert (answer.status_code, list(answer.json())) == (404, ["error"])


def test_large_tasks_have_the_scores_of_all_labels(listening, bert, make_artifact):
    """The native route has those of the best 256 labels."""
    labels = [f"intent {number}" for number in range(300)]
    listening.upload(make_artifact(bert, "lora", name="intents", labels=labels))
    listening.upload(make_artifact(bert, "lora", name="tags", labels=labels, task_type="multilabel"))
    for model in ("intents", "tags"):
        (scores,) = [one for one in infer(listening, model).json()["outputs"] if one["name"] == "scores"]
        assert scores["shape"] == [3, 300]
        right = predicted(listening, model, top_k=300)
        assert scores["data"] == [value for one in right for value in one["scores"].values()]


def test_a_t5_writes_texts_or_scores_labels(listen, t5_directory, t5, make_artifact):
    """By the task, unless the parameter `answer` says otherwise."""
    with listen(backbone=t5_directory) as started:
        started.upload(make_artifact(t5, "lora", name="film", answer="score"))
        started.upload(make_artifact(t5, "lora", name="words", answer="generate"))
        named = {model: list(outputs(infer(started, model))) for model in ("film", "words")}
        assert named == {"film": ["label", "score", "scores"], "words": ["text", "score", "finish_reason"]}
        about = {model: get(started, f"/models/{model}").json()["outputs"] for model in named}
        assert {model: [one["name"] for one in about[model]] for model in named} == named
        other = {"film": {"answer": "generate", "max_new_tokens": 3}, "words": {"answer": "score"}}
        turned = {model: list(outputs(infer(started, model, parameters=other[model]))) for model in named}
        assert turned == {"film": named["words"], "words": named["film"]}


async def test_a_version_in_quarantine_is_not_ready(running, bert, make_artifact):
    await running.upload(make_artifact(bert, "lora", name="film"))
    entry = running.service.catalog.get("default", "film").newest
    for _ in range(3):
        with pytest.raises(InferenceFailed), running.service.quarantine.attempt("default", entry):
            raise InferenceFailed("the output is not finite")
    ready = await running.client.get("/v2/models/film/ready")
    assert ready.status_code == 424
    assert "model 'film' is in quarantine" in ready.json()["error"]
    (indexed,) = (await running.client.post("/v2/repository/index", json={})).json()
    assert (indexed["state"], "not finite" in indexed["reason"]) == ("UNAVAILABLE", True)
    assert (await running.client.post("/v2/repository/index", json={"ready": True})).json() == []


# The protocol by Triton's own client.
MANY = np.array(["a good film", "bad", "ein schöner Film"], dtype=object)


@pytest.fixture(scope="module")
def client(listening: Listening) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(listening.url.removeprefix("http://")) as client:
        yield client


def texts(name: str = "text", *, binary: bool) -> triton.InferInput:
    tensor = triton.InferInput(name, [len(MANY)], "BYTES")
    tensor.set_data_from_numpy(MANY, binary_data=binary)
    return tensor


def test_it_finds_the_server_and_its_models(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("film")
    assert client.is_model_ready("film", "1")
    assert client.get_server_metadata()["name"] == "peltier"
    assert [one["name"] for one in client.get_model_metadata("nli")["inputs"]] == ["text", "text_pair"]
    assert "nli" in [one["name"] for one in client.get_model_repository_index()]


@pytest.mark.parametrize("binary", [True, False])
def test_it_reads_answers(binary: bool, client: triton.InferenceServerClient, listening: Listening) -> None:
    """Equal to those of the native route, whether tensors are bytes or JSON."""
    names = ("label", "score", "scores")
    asked = [triton.InferRequestedOutput(name, binary_data=binary) for name in names]
    found = client.infer("film", [texts(binary=binary)], outputs=asked, request_id="7", timeout=60_000_000)
    right = listening.predictions("film", list(MANY))
    labels = [one if isinstance(one, str) else one.decode() for one in found.as_numpy("label")]
    assert labels == [one["label"] for one in right]
    np.testing.assert_array_equal(found.as_numpy("scores"), np.float32([list(one["scores"].values()) for one in right]))
    assert found.get_response()["id"] == "7"


def test_it_sends_pairs(client: triton.InferenceServerClient) -> None:
    found = client.infer("nli", [texts("text_pair", binary=True), texts(binary=False)], model_version="1")
    assert found.as_numpy("scores").shape == (3, 2)


def test_it_loads_and_unloads(client: triton.InferenceServerClient, listening: Listening) -> None:
    """A load pins an adapter and an unload releases it; both models answer afterwards."""
    slots, owned = listening.service.slots, listening.service.catalog.get("default", "film").newest.owned
    client.load_model("film")
    assert owned in slots.device.pinned
    client.unload_model("film")
    assert listening.service.catalog.pinned() == []
    assert client.infer("film", [texts(binary=True)]).as_numpy("label").shape == (3,)
    with pytest.raises(InferenceServerException, match="adapter 'none' does not exist"):
        client.load_model("none")


def test_it_reads_errors(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="adapter 'none' does not exist") as error:
        client.infer("none", [texts(binary=True)])
    assert error.value.status() == "404"
