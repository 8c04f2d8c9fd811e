"""The Open Inference Protocol by Triton's own client."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tritonclient.http as triton
from peltier_backbone.backbone import Backbone
from tritonclient.utils import InferenceServerException

from tests.server.conftest import Listen, Listening

TEXTS = np.array(["a good film", "bad", "ein schöner Film"], dtype=object)


@pytest.fixture(scope="module")
def listening(listen: Listen, bert: Backbone, make_artifact: Callable[..., bytes]) -> Iterator[Listening]:
    """A task with single texts and one with pairs."""
    with listen() as started:
        started.upload(make_artifact(bert, "compacter", name="film"))
        started.upload(make_artifact(bert, "lora", inputs="pair", name="nli"))
        yield started


@pytest.fixture(scope="module")
def client(listening: Listening) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(listening.url.removeprefix("http://")) as client:
        yield client


def texts(name: str = "text", *, binary: bool) -> triton.InferInput:
    tensor = triton.InferInput(name, [len(TEXTS)], "BYTES")
    tensor.set_data_from_numpy(TEXTS, binary_data=binary)
    return tensor


def test_it_finds_the_server_and_its_models(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("film")
    assert client.is_model_ready("film", "1")
    assert client.get_server_metadata()["name"] == "peltier"
    assert [one["name"] for one in client.get_model_metadata("nli")["inputs"]] == ["text", "text_pair"]
    assert [one["name"] for one in client.get_model_repository_index()] == ["film", "nli"]


@pytest.mark.parametrize("binary", [True, False])
def test_it_reads_answers(binary: bool, client: triton.InferenceServerClient, listening: Listening) -> None:
    """Equal to those of the native route, whether tensors are bytes or JSON."""
    names = ("label", "score", "scores")
    asked = [triton.InferRequestedOutput(name, binary_data=binary) for name in names]
    found = client.infer("film", [texts(binary=binary)], outputs=asked, request_id="7", timeout=60_000_000)
    right = listening.predictions("film", list(TEXTS))
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
